"""Speed-up by draft length from two numbers alone: how often a token is accepted and what one costs to draft."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outpace.theory import checks, costs, speedup
from outpace.theory.speedup import LONGEST_DRAFT, Choice

ACCEPTANCES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
"""At which speed-ups are shown beside a plan's own."""


@dataclass(frozen=True, slots=True)
class Length:
    """What drafts of one length do: tokens a pass, times as fast as plain, arithmetic a token over plain's."""

    draft_length: int
    tokens_per_step: float
    speedup: float
    operations_factor: float


@dataclass(frozen=True, slots=True)
class LengthTable:
    """Lengths in order, the best of all of them, and the two bounds of the founding paper.

    ceiling: 1 / (1 - alpha), None where alpha = 1 and there is none. at_least: what the best length reaches at least
    when scoring is free, (1 + alpha) / (1 + c). slope: the share of a pass that each further row costs.
    """

    acceptance: float
    cost: float
    slope: float
    lengths: tuple[Length, ...]
    best: Choice
    ceiling: float | None
    at_least: float

    @property
    def speculate(self) -> bool:
        """True when some length is faster than plain decoding."""
        return self.best.pays

    @property
    def verdict(self) -> str:
        """One sentence: speculate with which length, or do not, and why."""
        if self.best.pays:
            return (
                f"speculate with {self.best.draft_length} tokens a draft: {self.best.tokens_per_step:.2f} tokens a "
                f"pass, {self.best.speedup:.2f} times as fast as plain"
            )
        if not speedup.can_pay(self.acceptance, self.cost):
            return (
                f"do not speculate: c = {self.cost:.3g} is not below alpha = {self.acceptance:.3g}, so no draft "
                "length is faster than plain (Leviathan et al., Corollary 3.9)"
            )
        return (
            f"do not speculate: each further row costs {self.slope:.3g} of a pass, which with c = {self.cost:.3g} is "
            f"not below alpha = {self.acceptance:.3g}"
        )

    def curves(self) -> dict[float | None, list[tuple[int, float]]]:
        """Returns (draft length, speed-up) by acceptance, the cost being this one's; None: of this table itself."""
        shown = len(self.lengths)
        tables: dict[float | None, LengthTable] = {
            alpha: length_table(alpha, self.cost, self.slope, shown)
            for alpha in ACCEPTANCES
            if alpha != self.acceptance
        }
        tables[None] = self
        return {alpha: [(row.draft_length, row.speedup) for row in one.lengths] for alpha, one in tables.items()}

    def record(self) -> dict[str, Any]:
        """Returns everything as plain values for JSON."""
        return asdict(self) | {"speculate": self.speculate, "verdict": self.verdict}


def length_table(acceptance: float, cost: float, slope: float = 0.0, shown: int = 10) -> LengthTable:
    """Returns tokens and speed-up for lengths 1..shown and the best of 0..64.

    E(alpha, gamma) / (1 + s gamma + c gamma): Theorem 3.8 of Leviathan et al. (arXiv 2211.17192) with a scoring
    cost that grows by `slope` = s a row. Raises UsageError for an acceptance outside [0, 1] or a negative cost.
    """
    alpha = checks.fraction("acceptance", acceptance)
    checks.not_negative("cost", cost, "target passes per drafted token")
    step = costs.StepCosts(costs.linear(1.0, slope), draft_seconds_per_token=cost)
    best = costs.best_draft_length([alpha] * LONGEST_DRAFT, step)
    rows = []
    for gamma in range(1, checks.count("lengths shown", shown, 1, "tokens") + 1):
        tokens = speedup.tokens_per_step(alpha, gamma)
        operations = speedup.operations_factor(alpha, gamma, cost)
        rows.append(Length(gamma, tokens, costs.speedup(tokens, gamma, step), operations))
    return LengthTable(
        acceptance=alpha,
        cost=cost,
        slope=slope,
        lengths=tuple(rows),
        best=best,
        ceiling=None if alpha == 1.0 else speedup.ceiling(alpha),
        at_least=speedup.guaranteed_improvement(alpha, cost),
    )
