"""Bootstrap intervals over prompts: how much a figure would move with other prompts of the same kind."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

RESAMPLES = 4000
LEVEL = 0.95
_SEED = 0

Table: TypeAlias = npt.NDArray[np.float64]
"""[..., columns]: sums over prompts, in the last axis."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % interval; low and high are None where one prompt stands behind it."""

    value: float
    low: float | None = None
    high: float | None = None

    def excludes(self, value: float) -> bool:
        """Whether the whole interval lies on one side of `value`."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    def record(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


def of_totals(rows: Sequence[Sequence[float]], figure: Callable[[Table], Table]) -> Interval:
    """Returns `figure` of the columns' totals over prompts, and its percentile bootstrap interval.

    rows: [prompts, columns], at least one. Whole rows are drawn with replacement, so that columns of one prompt stay
    together (paired). figure: [..., columns] -> [...]. The same rows give the same interval.
    """
    table = np.asarray(rows, dtype=np.float64)
    value = float(figure(table.sum(axis=0)))
    if len(table) < 2:
        return Interval(value)
    draws = np.random.default_rng(_SEED).integers(0, len(table), (RESAMPLES, len(table)))
    figures = figure(table[draws].sum(axis=1))
    low, high = np.quantile(figures, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


def rate(tokens_and_seconds: Sequence[Sequence[float]]) -> Interval:
    """Returns tokens/s over rows (tokens, seconds)."""
    return of_totals(tokens_and_seconds, lambda total: total[..., 0] / total[..., 1])


def rate_ratio(rows: Sequence[Sequence[float]]) -> Interval:
    """Returns how many times as fast a is as b, over rows (tokens a, seconds a, tokens b, seconds b)."""
    return of_totals(rows, lambda t: t[..., 0] / t[..., 1] * t[..., 3] / t[..., 2])


def of_turns(plain: Sequence[float], ours: Sequence[float]) -> tuple[float, float]:
    """Returns (plain seconds, ours) of one prompt whose turns measured the one beside the other.

    Ours is the median, and plain that times the median of the turns' own ratios: a machine that changes its speed
    between two turns changes both of a turn alike, while the medians of either may be of different speeds.
    """
    seconds = statistics.median(ours)
    return seconds * statistics.median(p / o for p, o in zip(plain, ours, strict=True)), seconds


def percentile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Returns the least value that `share` of the weight does not exceed; share in (0, 1]."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(np.asarray(weights, np.float64)[order])
    place = int(np.searchsorted(below, share * below[-1] * (1 - 1e-12)))
    return float(np.asarray(values, np.float64)[order][min(place, len(values) - 1)])
