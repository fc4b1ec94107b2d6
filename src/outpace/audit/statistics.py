"""Pearson's chi-square test of counts against exact probabilities, and its power, from first principles."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Cell = TypeVar("Cell", bound=Hashable)

LEAST_EXPECTED = 5.0
"""A cell that expects fewer is pooled with others (Cochran 1954)."""

_ENOUGH = 1e-14
_TERMS = 10_000


def upper_gamma(a: float, x: float) -> float:
    """Returns Q(a, x) = Gamma(a, x) / Gamma(a), a > 0 and x >= 0, to about 1e-13.

    The series for x < a + 1, the continued fraction (Lentz's method) beyond: Abramowitz and Stegun 6.5.29, 6.5.31.
    """
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _TERMS):
            term *= x / (a + n)
            total += term
            if term < total * _ENOUGH:
                break
        return max(0.0, 1 - scale * total)
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for n in range(1, _TERMS):
        factor = -n * (n - a)
        b += 2
        d = 1 / (factor * d + b or tiny)
        c = b + factor / c or tiny
        fraction *= d * c
        if abs(d * c - 1) < _ENOUGH:
            break
    return scale * fraction


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Returns the probability that a chi-square variable of so many degrees of freedom is above `statistic`."""
    return upper_gamma(freedom / 2, statistic / 2)


def critical_value(freedom: int, level: float) -> float:
    """Returns the statistic whose tail probability is `level`."""
    low, high = 0.0, freedom + 10.0
    while chi_square_tail(high, freedom) > level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if chi_square_tail(middle, freedom) > level else (low, middle)
    return high


def power(freedom: int, level: float, noncentrality: float) -> float:
    """Returns the probability that the test at `level` rejects, under a noncentral chi-square law.

    The noncentral tail is a Poisson mixture of central ones (Johnson, Kotz and Balakrishnan 1995, 29.3).
    """
    critical, half = critical_value(freedom, level), noncentrality / 2
    start = max(0, int(half - 12 * math.sqrt(half + 1)))
    total = 0.0
    for j in range(start, int(half + 12 * math.sqrt(half + 1)) + 30):
        weight = math.exp(j * math.log(half) - half - math.lgamma(j + 1)) if half else float(j == 0)
        total += weight * chi_square_tail(critical, freedom + 2 * j)
    return total


def needed_noncentrality(freedom: int, level: float, wanted: float) -> float:
    """Returns the noncentrality at which the test has the wanted power."""
    low, high = 0.0, 32.0
    while power(freedom, level, high) < wanted:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if power(freedom, level, middle) < wanted else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Fit:
    """A test of counts against a law. impossible: draws of probability 0; they alone reject.

    detectable: the total variation that the test sees with probability 0.99, whatever its shape.
    """

    n: int
    cells: int
    statistic: float
    critical: float
    level: float
    detectable: float
    impossible: int = 0

    @property
    def holds(self) -> bool:
        return self.statistic <= self.critical and not self.impossible

    def __str__(self) -> str:
        text = (
            f"chi-square {self.statistic:.1f}, critical {self.critical:.1f} ({self.cells} cells, n = {self.n}, level "
            f"{self.level:.2g}; a total variation of {self.detectable:.3f} is seen with power 0.99)"
        )
        return f"{text}; {self.impossible} draws of probability 0" if self.impossible else text


POWER = 0.99


def texts_to_see(variation: float, cells: int, level: float) -> int:
    """Returns the n at which the test over so many cells sees a total variation, of any shape, with power 0.99."""
    return math.ceil(needed_noncentrality(max(1, cells - 1), level, POWER) / (4 * variation**2))


def fit(counts: Mapping[Cell, int], law: Mapping[Cell, float], level: float) -> Fit:
    """Returns the test of counts against a law; what is counted and not in the law is impossible.

    detectable: by the Cauchy-Schwarz inequality the noncentrality n sum (d^2 / p) is at least 4 n TV^2.
    """
    n = sum(counts.values())
    impossible = sum(count for outcome, count in counts.items() if not law.get(outcome, 0.0) > 0)
    cells = _pooled(n, counts, law)
    freedom = max(1, len(cells) - 1)
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    detectable = math.sqrt(needed_noncentrality(freedom, level, POWER) / (4 * n))
    return Fit(n, len(cells), statistic, critical_value(freedom, level), level, detectable, impossible)


def _pooled(n: int, counts: Mapping[Cell, int], law: Mapping[Cell, float]) -> list[tuple[int, float]]:
    """Returns (counted, expected) of each cell, the rarest ones pooled until each expects enough."""
    cells = sorted(((n * p, counts.get(outcome, 0)) for outcome, p in law.items() if p > 0), reverse=True)
    kept = [(seen, expected) for expected, seen in cells if expected >= LEAST_EXPECTED]
    rare = [(seen, expected) for expected, seen in cells if expected < LEAST_EXPECTED]
    if rare:
        seen, expected = sum(s for s, _ in rare), sum(e for _, e in rare)
        if expected < LEAST_EXPECTED and kept:
            last = kept.pop()
            seen, expected = seen + last[0], expected + last[1]
        kept.append((seen, expected))
    return kept
