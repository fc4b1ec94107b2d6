"""The exact law of what a rule emits: every outcome of its randomness, in rational arithmetic.

`Uniforms` hands out one uniform for each key and never a number: a comparison cuts the key's interval in two and the
run continues on one side. `law_of` runs an experiment once for each way the cuts can fall. So a key read twice is the
same uniform twice, as it is with counter-based noise, and a rule that reuses randomness is found out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache

import numpy as np

Probs = np.ndarray
Table = Callable[[tuple[int, ...]], Probs]  # the tokens before -> [V] of Fraction


class Uniforms:
    """One run: `script` says on which side of each cut the run goes; what lies beyond it goes below."""

    def __init__(self, script: Sequence[bool]) -> None:
        self._script = list(script)
        self._intervals: dict[Hashable, tuple[Fraction, Fraction]] = {}
        self.taken: list[bool] = []

    def below(self, key: Hashable, threshold: Fraction) -> bool:
        low, high = self._intervals.get(key, (Fraction(0), Fraction(1)))
        if threshold <= low:
            return False
        if threshold >= high:
            return True
        turn = len(self.taken)
        below = self._script[turn] if turn < len(self._script) else True
        self.taken.append(below)
        self._intervals[key] = (low, threshold) if below else (threshold, high)
        return below

    def choose(self, key: Hashable, probs: Probs) -> int:
        total, sum_below = sum(probs), Fraction(0)
        for token, p in enumerate(probs):
            sum_below += Fraction(p)
            if p > 0 and self.below(key, sum_below / total):
                return token
        raise AssertionError("probabilities must have a positive sum")

    @property
    def weight(self) -> Fraction:
        product = Fraction(1)
        for low, high in self._intervals.values():
            product *= high - low
        return product


def law_of(experiment: Callable[[Uniforms], Hashable]) -> dict[Hashable, Fraction]:
    """Returns the probability of each outcome; they sum to exactly 1."""
    law: dict[Hashable, Fraction] = defaultdict(Fraction)
    scripts: list[list[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        uniforms = Uniforms(script)
        law[experiment(uniforms)] += uniforms.weight
        scripts += [[*uniforms.taken[:turn], False] for turn in range(len(script), len(uniforms.taken))]
    assert sum(law.values()) == 1
    return dict(law)


class ExactNoise:
    """`types.Noise` over the uniforms of one run, keyed as `RoundNoise` is."""

    def __init__(self, uniforms: Uniforms, committed: int) -> None:
        self._uniforms = uniforms
        self._committed = committed

    def accept(self, purpose: int, node: int, p: Fraction, q: Fraction) -> bool:
        return self._uniforms.below(self._key(purpose, node), Fraction(p) / Fraction(q))

    def categorical(self, purpose: int, node: int, probs: Probs) -> int:
        return self._uniforms.choose(self._key(purpose, node), probs)

    def _key(self, purpose: int, node: int) -> Hashable:
        return (int(purpose), self._committed, node)


class ExactLaw:
    """A law of Fractions whose draw is the plain sampler's at its position."""

    def __init__(self, probs: Probs, uniforms: Uniforms, position: int) -> None:
        self._probs, self._uniforms, self._position = probs, uniforms, position

    def draw(self) -> int:
        return self._uniforms.choose(("sample", self._position), self._probs)

    def probs(self) -> Probs:
        return self._probs


def joint(target: Table, horizon: int) -> dict[Hashable, Fraction]:
    """Returns the target's own law of the next `horizon` tokens, possible ones only."""
    law: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for _ in range(horizon):
        law = {
            (*tokens, token): mass * p
            for tokens, mass in law.items()
            for token, p in enumerate(target(tokens))
            if p > 0
        }
    return dict(law)


def total_variation(a: dict[Hashable, Fraction], b: dict[Hashable, Fraction]) -> Fraction:
    """Returns half the sum of |a - b|."""
    return sum((abs(a.get(x, Fraction(0)) - b.get(x, Fraction(0))) for x in a.keys() | b.keys()), Fraction(0)) / 2


def random_table(seed: int, vocab: int = 3, zeros: float = 0.0, levels: int = 7) -> Table:
    """Returns a table of laws that depend on every token before; few levels make ties."""

    @cache
    def probs(tokens: tuple[int, ...]) -> Probs:
        chance = random.Random(f"{seed} {tokens}")
        masses = [0 if chance.random() < zeros else chance.randint(1, levels) for _ in range(vocab)]
        if not any(masses):
            masses[chance.randrange(vocab)] = 1
        return fractions(masses)

    return probs


def fractions(masses: Sequence[int]) -> Probs:
    """Returns masses / their sum, as an array of Fraction."""
    return np.array([Fraction(mass, sum(masses)) for mass in masses], dtype=object)


def one_hot(token: int, vocab: int = 3) -> Probs:
    """Returns the law that is 1 on the token."""
    return fractions([int(x == token) for x in range(vocab)])
