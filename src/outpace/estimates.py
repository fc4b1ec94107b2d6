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
    """What to multiply a drafter's own probabilities by, so that they come true: accepted over expected tokens.

    It begins with WEIGHT of each, and a round fades what came before it.
    """

    WEIGHT, FADE = 8.0, 0.97
    LEAST, MOST = 0.3, 1.5

    def __init__(self) -> None:
        self.scale = 1.0
        self._right = self._expected = 0.0

    def observe(self, right: int, expected: float) -> None:
        """Learns that of `expected` tokens by the scaled probabilities `right` came true."""
        self._right = self.FADE * self._right + right
        self._expected = self.FADE * self._expected + expected / self.scale
        scale = (self.WEIGHT + self._right) / (self.WEIGHT + self._expected)
        self.scale = min(max(scale, self.LEAST), self.MOST)
