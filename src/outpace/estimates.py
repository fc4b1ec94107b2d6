"""What is learnt about drafts from what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Expectation:
    """What control expects of the next rounds, in passes of one row, of which each takes `plain_seconds` now.

    draft_length: tokens drafted; where a drafter limits itself, of late. tokens: committed a round. cost: of a round.
    rates: [n + 1] tokens for a pass's time by draft length; empty where the drafter decides on the length.
    """

    plain_seconds: float
    draft_length: float
    tokens: float
    cost: float
    rates: tuple[float, ...] = ()

    @property
    def speedup(self) -> float:
        """Over plain decoding."""
        return self.tokens / self.cost


@runtime_checkable
class Expecting(Protocol):
    """A controller that works with expectations."""

    def expectation(self) -> Expectation | None:
        """Returns what it expects now; None before it knows anything."""
        ...


class Acceptance:
    """How likely each position of a draft is accepted, given the ones before it.

    A draft says nothing about the positions after its first rejection. Old rounds fade; a position that was
    hardly reached is taken to be like the one before it.
    """

    FADE = 0.98
    PRIOR_WEIGHT = 4.0

    def __init__(self, first: float) -> None:
        self._first = first
        self._right: list[float] = []
        self._tried: list[float] = []

    def observe(self, drafted: int, accepted: int) -> None:
        while len(self._tried) < drafted:
            self._right.append(0.0)
            self._tried.append(0.0)
        # All fade, so that a position that looked poor once is not shunned for ever.
        self._right = [right * self.FADE for right in self._right]
        self._tried = [tried * self.FADE for tried in self._tried]
        for i in range(min(drafted, accepted + 1)):
            self._right[i] += i < accepted
            self._tried[i] += 1

    def reached(self, length: int) -> list[float]:
        """Returns [length] the probability that each position is accepted, with all before it."""
        rate, path, paths = self._first, 1.0, []
        for i in range(length):
            if i < len(self._tried):
                rate = (self.PRIOR_WEIGHT * rate + self._right[i]) / (self.PRIOR_WEIGHT + self._tried[i])
            path *= rate
            paths.append(path)
        return paths


class Calibration:
    """What the odds of a drafter's guesses are to be multiplied by, so that its probabilities come true.

    Every round moves it by the right tokens over the expected ones, each with WEIGHT more of both.
    """

    WEIGHT = 20.0
    MOST = 8.0

    def __init__(self) -> None:
        self.odds = 1.0

    def __call__(self, probability: float) -> float:
        """Returns a probability as it should be."""
        return self.odds * probability / (1.0 - probability + self.odds * probability)

    def observe(self, right: int, expected: float) -> None:
        """Learns that of `expected` tokens, by the probabilities as they should be, `right` came true."""
        odds = self.odds * (self.WEIGHT + right) / (self.WEIGHT + expected)
        self.odds = min(max(odds, 1 / self.MOST), self.MOST)
