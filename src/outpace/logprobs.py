"""Log-probabilities of emitted tokens under the target's own law: of its logits as they are, whatever is sampled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from outpace.result import TokenLogprob
from outpace.types import Array, Observation, Step


def token_logprob(row: Array, token: int, count: int) -> TokenLogprob:
    """Returns the token's x - ln sum e^x over row [V] f32, and the `count` likeliest tokens with theirs.

    Ties go to the lowest id; tokens of probability 0 are left out. Exponentials are float32 and their sum float64:
    off by less than 1e-6. Logits of +inf share everything among them.
    """
    logits = np.asarray(row, dtype=np.float32)
    largest = logits.max()
    if largest == np.inf:
        logits, largest = np.where(logits == np.inf, np.float32(0), np.float32(-np.inf)), np.float32(0)
    total = float(largest) + math.log(np.exp(logits - largest).sum(dtype=np.float64))
    best: list[int] = []
    if count:
        # All that tie with the last place, so that the lowest ids among them win.
        least = np.partition(logits, -count)[-count]
        best = sorted(np.flatnonzero(logits >= least).tolist(), key=lambda id: (-logits[id], id))[:count]
    top = tuple((id, float(logits[id]) - total) for id in best if logits[id] > -np.inf)
    return TokenLogprob(token, float(logits[token]) - total, top)


def rows_of(step: Step) -> tuple[int, ...]:
    """Returns [len(step.tokens)] the row of `Scores` that each committed token was decided on."""
    return (0, *(node + 1 for node in step.verdict.path))


class LogprobObserver:
    """An observer that keeps a TokenLogprob of every committed token. count: alternatives; then: observes next."""

    def __init__(self, count: int, then: Callable[[Observation], None] | None = None) -> None:
        self.found: list[TokenLogprob] = []
        self._count = count
        self._then = then

    def __call__(self, seen: Observation) -> None:
        logits = np.asarray(seen.scores.logits)
        for row, token in zip(rows_of(seen.step), seen.step.tokens, strict=True):
            self.found.append(token_logprob(logits[row], token, self._count))
        if self._then:
            self._then(seen)
