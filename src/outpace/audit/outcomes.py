"""The exact law of a text's first tokens, on a truncated alphabet: likely beginnings apart, the rest together."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from outpace.processors import Adjustments, adjusted
from outpace.sampling import Reference, SamplingParams

Tokens: TypeAlias = tuple[int, ...]
Probs: TypeAlias = npt.NDArray[np.float64]

OTHER = -1
"""Stands for every token that has no cell of its own."""


def exact_probs(
    row: npt.NDArray[np.float32], before: Tokens, prompt_length: int, params: SamplingParams, wanted: Adjustments
) -> Probs:
    """Returns [V] the target's law after `before`, by the readable processors and the readable sampler."""
    if not wanted.idle:
        row = adjusted(row, before, prompt_length, wanted)
    return Reference(params, 0, 0).probs(row)


@dataclass(slots=True)
class Outcomes:
    """A partition of all texts by how they begin.

    law: cell -> exact probability. A cell is a text's beginning, the last token OTHER where it stands for many.
    inner: the beginnings that are split further, with the law [V] of the next token.
    """

    horizon: int
    law: dict[Hashable, float] = field(default_factory=dict)
    inner: dict[Tokens, Probs] = field(default_factory=dict)

    def cell(self, tokens: Tokens) -> Hashable:
        """Returns the cell of a text, None if it is impossible."""
        begun: Tokens = ()
        for token in tokens:
            probs = self.inner.get(begun)
            if probs is None:
                break
            if not probs[token] > 0:
                return None
            begun = (*begun, token)
            if begun not in self.law and begun not in self.inner:
                return (*begun[:-1], OTHER)
        return begun

    def count(self, texts: Mapping[Tokens, int]) -> Counter[Hashable]:
        """Returns how often each cell came."""
        found: Counter[Hashable] = Counter()
        for tokens, times in texts.items():
            found[self.cell(tokens)] += times
        return found


def outcomes(probs_after: Callable[[Tokens], Probs | None], horizon: int, *, least: float, most: int) -> Outcomes:
    """Returns the partition: beginnings of probability `least` and more, up to `most` of them split further.

    probs_after: the law of the next token after a beginning; None where it is not known, or the text ends.
    """
    found = Outcomes(horizon)
    waiting: list[tuple[float, Tokens]] = [(-1.0, ())]
    while waiting:
        mass, begun = heapq.heappop(waiting)
        mass = -mass
        split = len(begun) < horizon and len(found.inner) < most
        probs = probs_after(begun) if split else None
        if probs is None:
            found.law[begun] = mass
            continue
        found.inner[begun] = probs
        likely = [int(token) for token in np.flatnonzero(mass * probs >= least)]
        for token in likely:
            heapq.heappush(waiting, (-mass * float(probs[token]), (*begun, token)))
        rest = probs.copy()
        rest[likely] = 0
        if rest.any():
            found.law[*begun, OTHER] = mass * float(rest.sum())
    return found
