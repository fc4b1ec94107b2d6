from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.theory import costs, speedup

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# Slope s of T(n), draft cost c, then best draft length (of 0 to 24) and speed-up at each of ALPHAS.
BEST = [
    (0.0, 0.05, [(3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67), (21, 6.60)]),
    (0.03, 0.0, [(4, 1.73), (5, 2.07), (7, 2.60), (10, 3.52), (16, 5.63), (24, 8.40)]),
    (0.03, 0.05, [(3, 1.51), (3, 1.75), (5, 2.10), (6, 2.67), (11, 3.82), (17, 5.11)]),
    (0.03, 0.3, [(1, 1.13), (1, 1.20), (2, 1.32), (3, 1.48), (5, 1.77), (7, 2.03)]),
    (0.10, 0.0, [(2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43), (15, 4.48)]),
    (0.10, 0.05, [(2, 1.35), (2, 1.51), (3, 1.75), (5, 2.11), (8, 2.78), (12, 3.48)]),
    (0.10, 0.15, [(1, 1.20), (2, 1.31), (2, 1.46), (3, 1.69), (6, 2.09), (9, 2.47)]),
    (0.10, 0.3, [(1, 1.07), (1, 1.14), (2, 1.22), (2, 1.36), (4, 1.58), (6, 1.77)]),
    (0.20, 0.0, [(2, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37), (10, 2.87)]),
    (0.20, 0.3, [(1, 1.00), (1, 1.07), (1, 1.13), (2, 1.22), (3, 1.38), (5, 1.51)]),
]


@pytest.mark.parametrize(
    ("slope", "cost", "alpha", "length", "ratio"),
    [(s, c, alpha, *best) for s, c, row in BEST for alpha, best in zip(ALPHAS, row, strict=True)],
)
def test_best_lengths_with_a_slope_and_a_draft_cost(
    slope: float, cost: float, alpha: float, length: int, ratio: float
) -> None:
    step = costs.StepCosts(costs.linear(1.0, slope), draft_seconds_per_token=cost)
    best = costs.best_draft_length([alpha] * 24, step)
    assert best.speedup == pytest.approx(ratio, abs=0.00501)
    # Neighbouring lengths may agree to all printed digits.
    at_printed = costs.speedup(speedup.tokens_per_step(alpha, length), length, step)
    assert best.draft_length == length or at_printed == pytest.approx(best.speedup, abs=0.005)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 20))
def test_flat_scoring_is_theorem_3_8(alpha: float, cost: float, gamma: int) -> None:
    step = costs.StepCosts(costs.flat(0.01), draft_seconds_per_token=0.01 * cost)
    tokens = speedup.tokens_per_step(alpha, gamma)
    assert costs.speedup(tokens, gamma, step) == pytest.approx(speedup.improvement(alpha, gamma, cost))


def test_measured_points_are_joined_by_lines() -> None:
    score = costs.measured([(8, 0.030), (1, 0.010), (4, 0.016)])
    assert [score(n) for n in (1, 2, 4, 6, 8)] == pytest.approx([0.010, 0.012, 0.016, 0.023, 0.030])


def test_a_real_scoring_curve_makes_a_draft_model_lose() -> None:
    # llama.cpp on a 1.5B: 32 ms a row, 80 for four, 162 for eight; the 0.5B draft takes 18 ms a token.
    steep = costs.StepCosts(costs.measured([(1, 0.032), (4, 0.080), (8, 0.162)]), draft_seconds_per_token=0.018)
    assert costs.best_draft_length([0.66] * 7, steep).draft_length == 0
    assert costs.speedup(speedup.tokens_per_step(0.66, 3), 3, steep) < 0.6
    level = costs.StepCosts(costs.linear(0.032, 0.03), draft_seconds_per_token=0.4 * 0.032)
    assert costs.best_draft_length([0.66] * 7, level).speedup > 1.1


def test_a_jump_in_the_cost_does_not_hide_the_better_length_beyond_it() -> None:
    step = costs.StepCosts(lambda rows: 1.0 if rows == 1 else 1.5)
    assert costs.best_draft_length([0.9] * 8, step).draft_length == 8


def test_costs_of_a_step_are_paid_only_by_speculation() -> None:
    step = costs.StepCosts(costs.flat(1.0), 0.1, draft_seconds_per_step=0.2, overhead_seconds=0.05)
    assert step.step_seconds(0) == 1.0
    assert step.step_seconds(3) == pytest.approx(1.55)
    assert step.step_seconds(2, nodes=6) == pytest.approx(1.45)
    assert step.draft_cost == pytest.approx(0.1)


def test_break_even_is_c_when_scoring_is_free_and_none_when_out_of_reach() -> None:
    assert costs.break_even_acceptance(costs.StepCosts(costs.flat(2.0), 0.6)) == pytest.approx(0.3)
    steep = costs.StepCosts(costs.linear(1.0, 1.0), 0.1)
    assert costs.break_even_acceptance(steep) is None
    step = costs.StepCosts(costs.linear(1.0, 0.1), 0.2)
    alpha = costs.break_even_acceptance(step, 4)
    assert alpha is not None
    assert costs.speedup(speedup.tokens_per_step(alpha, 4), 4, step) == pytest.approx(1.0)


def test_counts_by_position_become_conditional_acceptances() -> None:
    assert costs.conditional_acceptances([60, 42, 42], [100, 60, 42]) == pytest.approx((0.6, 0.7, 1.0))


def test_independence_overstates_short_drafts_of_mixed_contexts() -> None:
    # Half the contexts accept always and half never: 1 + 4/2 tokens. One pooled alpha says otherwise.
    error = costs.independence_error([50, 50, 50, 50], [100, 50, 50, 50])
    pooled = 200 / 250
    assert error == pytest.approx(speedup.tokens_per_step(pooled, 4) / 3.0 - 1.0)
    assert error > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: costs.measured([(2, 0.1)]), "needs the time of one row"),
        (lambda: costs.measured([(1, 0.1), (1, 0.2)]), "one time for each number of rows"),
        (lambda: costs.measured([(1, 0.1), (4, 0.2)])(5), "measured for 1 to 4 rows, got 5: measure more rows"),
        (lambda: costs.measured([(1, -0.1)]), "seconds at 1 rows must be a positive number of seconds, got -0.1"),
        (lambda: costs.StepCosts(costs.flat(1.0), overhead_seconds=-1.0), "overhead_seconds must be 0 or a positive"),
        (lambda: costs.conditional_acceptances([1, 2], [3]), "got 2 and 1"),
        (lambda: costs.conditional_acceptances([1, 0], [3, 0]), "position 2 needs 0 <= accepted <= tested"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
