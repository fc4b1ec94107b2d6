"""The rule of the founding papers on the real pair: measured acceptance against the laws it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from acceptance import Outcome

from first_light.common import DRAFT, SEED, TARGET, load, per_task
from outpace.rules import overlap
from outpace.theory.speedup import tokens_per_step
from outpace.types import Observation

LENGTH = 4
Z = 3.0  # standard errors: a right build fails once in 370 runs, and the seed is fixed


@dataclass
class Tally:
    """Per position: how often it was tried and accepted, and the sum over its contexts of sum min(p, q)."""

    tried: list[int] = field(default_factory=lambda: [0] * LENGTH)
    accepted: list[int] = field(default_factory=lambda: [0] * LENGTH)
    overlap: list[float] = field(default_factory=lambda: [0.0] * LENGTH)
    variance: float = 0.0  # of the first position's accepted count, given its contexts
    steps: int = 0
    tokens: int = 0

    def __call__(self, seen: Observation) -> None:
        draft, path = seen.step.draft, seen.step.verdict.path
        if len(draft) < LENGTH or seen.step.finish:
            return  # a cut step or a short draft says nothing of the positions it left out
        self.steps += 1
        self.tokens += len(path) + 1
        for i in range(min(LENGTH, len(path) + 1)):
            law = draft.laws[i]
            beta = float(overlap(seen.laws[i].probs(), law.probs())) if law else 0.0
            self.tried[i] += 1
            self.accepted[i] += i < len(path)
            self.overlap[i] += beta
            if i == 0:
                self.variance += beta * (1 - beta)


def rejection() -> Iterator[Outcome]:
    model, tally = load(TARGET, DRAFT), Tally()
    for number, (_, prompt) in enumerate(per_task(5)):
        model.generate(prompt, max_tokens=96, temperature=1.0, seed=SEED + number, drafter="model",
                       draft_length=LENGTH, rule="rejection", observer=tally)  # fmt: skip
    first, expected = tally.accepted[0] / tally.tried[0], tally.overlap[0] / tally.tried[0]
    error = np.sqrt(tally.variance) / tally.tried[0]
    yield Outcome("first position: accepted against mean of sum min(p, q)", f"{first:.3f} against {expected:.3f}",
                  f"within {Z:.0f} standard errors", bool(abs(first - expected) <= Z * error),
                  f"+-{Z * error:.3f}, n = {tally.tried[0]}")  # fmt: skip
    measured = tally.tokens / tally.steps
    conditional = [o / t for o, t in zip(tally.overlap, tally.tried, strict=True)]
    predicted = 1 + float(np.cumprod(conditional).sum())
    independent = tokens_per_step(expected, LENGTH)
    yield Outcome("tokens a step against 1 + sum of products", f"{measured:.3f} against {predicted:.3f}",
                  "within 2 %", bool(abs(measured / predicted - 1) <= 0.02),
                  f"i.i.d. formula {independent:.3f}, n = {tally.steps}")  # fmt: skip


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("rejection", "real pair, rule rejection, temperature 1: acceptance is what the laws say", rejection),
]
