"""How many tokens a step commits and how much faster that is, when scoring a draft costs what one token costs.

Letters in formulas: alpha the acceptance rate of one drafted token, gamma the draft length, c the draft's
cost (seconds of one drafted token over seconds of one plain target pass), c^ the same in operations.

Theorems and corollaries are those of Leviathan, Kalman and Matias, "Fast Inference from Transformers via
Speculative Decoding", ICML 2023 (arXiv 2211.17192). They assume that tokens are accepted independently with
one probability, and that the target scores gamma + 1 rows in the time of one. `costs` drops both assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outpace.errors import UsageError
from outpace.theory import checks

LONGEST_DRAFT = 64
"""The longest draft that `best_draft_length` weighs unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A draft length, and what it is predicted to do. Length 0 is plain decoding, with a speed-up of 1."""

    draft_length: int
    tokens_per_step: float
    speedup: float

    @property
    def pays(self) -> bool:
        """True when speculation is predicted to be faster than plain decoding."""
        return self.draft_length > 0 and self.speedup > 1.0


def tokens_per_step(acceptance: float, draft_length: int) -> float:
    """Returns the expected tokens that one step commits, correction or bonus included; in [1, gamma + 1].

    E = (1 - alpha^(gamma + 1)) / (1 - alpha), Leviathan et al. equation 1; gamma + 1 at alpha = 1. Accurate to
    rounding for every alpha in [0, 1].
    """
    alpha = checks.fraction("acceptance", acceptance)
    rows = checks.count("draft_length", draft_length, 0, "tokens") + 1
    rejection = 1.0 - alpha
    if rejection == 0.0:
        return float(rows)
    if alpha == 0.0:
        return 1.0
    # 1 - alpha^n loses its digits near alpha = 1; expm1 and log1p keep them.
    log_alpha = math.log1p(-rejection) if alpha > 0.5 else math.log(alpha)
    return -math.expm1(rows * log_alpha) / rejection


def tokens_per_step_by_position(conditional_acceptances: Sequence[float]) -> float:
    """Returns the expected tokens of a step from alpha_i = P(token i accepted | tokens 1..i-1 accepted).

    E = 1 + sum_i prod_{j <= i} alpha_j: exact for a chain whatever the dependence between positions. With all
    alpha_i equal it is `tokens_per_step`.
    """
    expected, alive = 1.0, 1.0
    for position, alpha in enumerate(conditional_acceptances, 1):
        alive *= checks.fraction(f"conditional acceptance at position {position}", alpha)
        expected += alive
    return expected


def acceptance_from_tokens_per_step(tokens: float, draft_length: int) -> float:
    """Returns the alpha at which `tokens_per_step(alpha, draft_length)` is `tokens` (equation 1, inverted).

    It turns a counter that an engine publishes (its mean accepted length plus one) into an acceptance rate.
    Raises UsageError unless tokens is in [1, draft_length + 1] and draft_length is at least 1.
    """
    gamma = checks.count("draft_length", draft_length, 1, "tokens")
    if not 1.0 <= tokens <= gamma + 1:
        raise UsageError(f"tokens per step must be in [1, {gamma + 1}] at draft length {gamma}, got {tokens}")
    low, high = 0.0, 1.0
    # 60 halvings reach the spacing of doubles; E is strictly increasing in alpha.
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tokens_per_step(middle, gamma) < tokens else (low, middle)
    return 0.5 * (low + high)


def improvement(acceptance: float, draft_length: int, draft_cost: float) -> float:
    """Returns how many times faster than plain decoding speculation is: 1 is no change.

    (1 - alpha^(gamma + 1)) / ((1 - alpha)(gamma c + 1)), Leviathan et al. Theorem 3.8.
    """
    cost = checks.not_negative("draft_cost", draft_cost, "target passes per drafted token")
    return tokens_per_step(acceptance, draft_length) / (draft_length * cost + 1.0)


def operations_factor(acceptance: float, draft_length: int, draft_operations: float = 0.0) -> float:
    """Returns arithmetic per committed token over that of plain decoding; what speculation costs a busy processor.

    (1 - alpha)(gamma c^ + gamma + 1) / (1 - alpha^(gamma + 1)), Leviathan et al. Theorem 3.11; draft_operations
    is c^, the draft's operations per token over the target's.
    """
    operations = checks.not_negative("draft_operations", draft_operations, "target tokens' operations")
    return (draft_length * operations + draft_length + 1) / tokens_per_step(acceptance, draft_length)


def ceiling(acceptance: float) -> float:
    """Returns the tokens per step, and so the speed-up, that no draft length exceeds: 1 / (1 - alpha).

    The limit of equation 1 for gamma -> infinity at c = 0, Leviathan et al. section 3.4; infinite at alpha = 1.
    """
    rejection = 1.0 - checks.fraction("acceptance", acceptance)
    return math.inf if rejection == 0.0 else 1.0 / rejection


def can_pay(acceptance: float, draft_cost: float) -> bool:
    """Returns True when some draft length is faster than plain: alpha > c, Leviathan et al. Corollary 3.9."""
    alpha = checks.fraction("acceptance", acceptance)
    return alpha > checks.not_negative("draft_cost", draft_cost, "target passes per drafted token")


def guaranteed_improvement(acceptance: float, draft_cost: float) -> float:
    """Returns the speed-up that the best draft length reaches at least: (1 + alpha) / (1 + c), or 1 where alpha <= c.

    Leviathan et al. Corollary 3.9: it is the improvement of a single drafted token.
    """
    return improvement(acceptance, 1, draft_cost) if can_pay(acceptance, draft_cost) else 1.0


def best_draft_length(acceptance: float, draft_cost: float, longest: int = LONGEST_DRAFT) -> Choice:
    """Returns the draft length in 0..longest with the greatest improvement (Theorem 3.8), the shortest of equals."""
    checks.count("longest", longest, 0, "tokens")
    return best_choice(
        [tokens_per_step(acceptance, gamma) for gamma in range(longest + 1)],
        lambda gamma: improvement(acceptance, gamma, draft_cost),
    )


def best_choice(tokens: Sequence[float], speedup: Callable[[int], float]) -> Choice:
    """Returns the best of draft lengths 0..len(tokens) - 1 by `speedup(length)`; the shortest of equals.

    Every length is tried: a measured cost may jump (a kernel's tile is full) and fall in relation again after it.
    """
    choices = (
        Choice(gamma, expected, 1.0 if gamma == 0 else speedup(gamma)) for gamma, expected in enumerate(tokens)
    )
    return max(choices, key=lambda choice: (choice.speedup, -choice.draft_length))
