"""The speed-up with measured costs: scoring n rows takes T(n), not T(1), and every step has an overhead.

    speed-up(gamma) = E(gamma) T(1) / (T(gamma + 1) + D(gamma) + overhead)

E the tokens per step from the acceptance at each position, D the drafter's seconds. With T(n) = T(1) and no
overhead it is Theorem 3.8 of Leviathan et al. (arXiv 2211.17192). The goodput model of SmartSpec / TurboSpec
(Liu et al., arXiv 2406.14066) is the same quotient.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TypeAlias

from outpace.errors import UsageError
from outpace.theory import checks
from outpace.theory.speedup import (
    Choice,
    acceptance_from_tokens_per_step,
    best_choice,
    tokens_per_step,
    tokens_per_step_by_position,
)

SecondsByRows: TypeAlias = Callable[[int], float]
"""T(n): seconds of one target pass over n >= 1 rows."""


def flat(seconds: float) -> SecondsByRows:
    """Returns T(n) = T(1), the assumption of Leviathan et al. section 3.1."""
    return linear(seconds, 0.0)


def linear(seconds: float, slope: float) -> SecondsByRows:
    """Returns T(n) = T(1) (1 + s (n - 1)), s the share of a pass that each further row costs."""
    first = checks.positive("seconds of one row", seconds, "seconds")
    step = checks.not_negative("slope", slope, "passes per row")
    return lambda rows: first * (1.0 + step * (checks.count("rows", rows, 1, "rows") - 1))


def measured(seconds_at: Sequence[tuple[int, float]]) -> SecondsByRows:
    """Returns T(n) through measured points (rows, seconds), straight lines between them.

    It needs a point at one row. Asking outside the measured rows raises UsageError: a cost that nobody measured
    is not guessed.
    """
    points = sorted(seconds_at)
    rows_at = [checks.count("rows of a measured point", rows, 1, "rows") for rows, _ in points]
    times = [checks.positive(f"seconds at {rows} rows", seconds, "seconds") for rows, seconds in points]
    if not rows_at or rows_at[0] != 1:
        raise UsageError("a measured scoring cost needs the time of one row: measure 1 row as well")
    if len(set(rows_at)) != len(rows_at):
        raise UsageError(f"a measured scoring cost needs one time for each number of rows, got rows {rows_at}")

    def seconds(rows: int) -> float:
        checks.count("rows", rows, 1, "rows")
        if rows > rows_at[-1]:
            raise UsageError(
                f"the scoring cost was measured for 1 to {rows_at[-1]} rows, got {rows}: measure more rows"
            )
        right = bisect_left(rows_at, rows)
        if rows_at[right] == rows:
            return times[right]
        share = (rows - rows_at[right - 1]) / (rows_at[right] - rows_at[right - 1])
        return times[right - 1] + share * (times[right] - times[right - 1])

    return seconds


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step costs.

    score: T(n), seconds of a target pass over n rows. draft_seconds_per_token: a chain drafter's pass; 0 for
    n-grams. draft_seconds_per_step: what drafting costs once a step, whatever its length (a search, a drafter
    that proposes a block in one pass). overhead_seconds: everything else that speculation adds to a step.
    """

    score: SecondsByRows
    draft_seconds_per_token: float = 0.0
    draft_seconds_per_step: float = 0.0
    overhead_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("draft_seconds_per_token", "draft_seconds_per_step", "overhead_seconds"):
            checks.not_negative(name, getattr(self, name), "seconds")

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain step: T(1)."""
        return self.score(1)

    @property
    def draft_cost(self) -> float:
        """c: the draft's seconds a token over a plain step's."""
        return self.draft_seconds_per_token / self.plain_seconds

    def step_seconds(self, draft_length: int, nodes: int | None = None) -> float:
        """Returns the seconds of a step with `draft_length` draft passes and `nodes` scored drafted tokens.

        A chain has as many nodes as passes; a tree has more. Length 0 is a plain step.
        """
        passes = checks.count("draft_length", draft_length, 0, "tokens")
        scored = passes if nodes is None else checks.count("nodes", nodes, 0, "tokens")
        if scored == 0 and passes == 0:
            return self.plain_seconds
        drafting = passes * self.draft_seconds_per_token + self.draft_seconds_per_step
        return self.score(scored + 1) + drafting + self.overhead_seconds


def speedup(expected_tokens: float, draft_length: int, costs: StepCosts, nodes: int | None = None) -> float:
    """Returns E T(1) / (T(n + 1) + gamma d + overhead): how many times faster than plain decoding a step is.

    E is `expected_tokens` per step, n is `nodes`, by default draft_length. See the module for the equation's source.
    """
    tokens = checks.positive("expected_tokens", expected_tokens, "tokens per step")
    return tokens * costs.plain_seconds / costs.step_seconds(draft_length, nodes)


def best_draft_length(conditional_acceptances: Sequence[float], costs: StepCosts) -> Choice:
    """Returns the draft length in 0..len(conditional_acceptances) with the greatest speed-up, the shortest of equals.

    conditional_acceptances: alpha_i = P(token i accepted | those before it were); [alpha] * n for one alpha.
    """
    for position, alpha in enumerate(conditional_acceptances, 1):
        checks.fraction(f"conditional acceptance at position {position}", alpha)
    tokens = list(accumulate(accumulate(conditional_acceptances, mul), initial=1.0))
    return best_choice(tokens, lambda gamma: speedup(tokens[gamma], gamma, costs))


def break_even_acceptance(costs: StepCosts, draft_length: int = 1) -> float | None:
    """Returns the least alpha at which drafts of `draft_length` are no slower than plain, None if none is.

    It solves E(alpha, gamma) = step seconds / T(1). For one token it is (T(2) + d + overhead) / T(1) - 1, which is
    c when scoring is free: the condition alpha > c of Leviathan et al. Corollary 3.9.
    """
    checks.count("draft_length", draft_length, 1, "tokens")
    needed = costs.step_seconds(draft_length) / costs.plain_seconds
    return None if needed > draft_length + 1 else acceptance_from_tokens_per_step(max(1.0, needed), draft_length)


def conditional_acceptances(
    accepted_by_position: Sequence[int], tested_by_position: Sequence[int]
) -> tuple[float, ...]:
    """Returns alpha_i = accepted_i / tested_i; counts of tokens accepted and tested at draft positions 1..n."""
    if len(accepted_by_position) != len(tested_by_position) or not tested_by_position:
        raise UsageError(
            "acceptance by position needs as many accepted as tested counts, and at least one, got "
            f"{len(accepted_by_position)} and {len(tested_by_position)}"
        )
    for position, (accepted, tested) in enumerate(zip(accepted_by_position, tested_by_position, strict=True), 1):
        if not 0 <= accepted <= tested or tested == 0:
            raise UsageError(
                f"position {position} needs 0 <= accepted <= tested and tested > 0, got {accepted} of {tested}: "
                "leave out positions that were never tested"
            )
    return tuple(a / t for a, t in zip(accepted_by_position, tested_by_position, strict=True))


def independence_error(accepted_by_position: Sequence[int], tested_by_position: Sequence[int]) -> float:
    """Returns by what share one alpha for all positions overstates the tokens per step: 0.1 is 10 % too many.

    The one alpha is accepted over tested tokens, its maximum-likelihood estimate if acceptances were independent
    (Leviathan et al. equation 1). They are not: easy contexts are accepted to the end, hard ones fail at once.
    """
    conditionals = conditional_acceptances(accepted_by_position, tested_by_position)
    pooled = sum(accepted_by_position) / sum(tested_by_position)
    return tokens_per_step(pooled, len(conditionals)) / tokens_per_step_by_position(conditionals) - 1.0
