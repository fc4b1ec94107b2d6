from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.theory import speedup

alphas = st.floats(0.0, 1.0)
lengths = st.integers(0, 40)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 0.5, 0.999999, 1 - 1e-12, 1 - 2**-53])
@pytest.mark.parametrize("gamma", [0, 1, 7, 64])
def test_tokens_per_step_is_accurate_to_rounding_everywhere(alpha: float, gamma: int) -> None:
    exact = sum(Fraction(alpha) ** i for i in range(gamma + 1))
    assert speedup.tokens_per_step(alpha, gamma) == pytest.approx(float(exact), rel=1e-13)


def test_tokens_per_step_at_the_ends() -> None:
    assert speedup.tokens_per_step(0.0, 9) == 1.0
    assert speedup.tokens_per_step(1.0, 9) == 10.0
    assert speedup.tokens_per_step(0.7, 0) == pytest.approx(1.0)


@given(alphas, lengths)
def test_one_alpha_at_every_position_is_equation_1(alpha: float, gamma: int) -> None:
    assert speedup.tokens_per_step_by_position([alpha] * gamma) == pytest.approx(
        speedup.tokens_per_step(alpha, gamma)
    )


@given(st.floats(0.001, 0.999), st.integers(1, 40))
def test_acceptance_is_recovered_from_tokens_per_step(alpha: float, gamma: int) -> None:
    tokens = speedup.tokens_per_step(alpha, gamma)
    assert speedup.acceptance_from_tokens_per_step(tokens, gamma) == pytest.approx(alpha, abs=1e-9)


@given(st.floats(0.0, 0.999), st.floats(0.0, 2.0))
def test_some_draft_length_pays_exactly_when_alpha_exceeds_c(alpha: float, cost: float) -> None:
    best = speedup.best_draft_length(alpha, cost)
    if speedup.can_pay(alpha, cost):
        assert best.speedup >= speedup.guaranteed_improvement(alpha, cost) * (1 - 1e-12)
        assert best.speedup >= 1.0
    else:
        assert best.speedup == pytest.approx(1.0)
    assert best.speedup <= speedup.ceiling(alpha) * (1 + 1e-12)


@given(alphas, st.floats(0.0, 1.0), st.integers(0, 20))
def test_the_best_length_is_the_best_of_all(alpha: float, cost: float, gamma: int) -> None:
    assert speedup.best_draft_length(alpha, cost, 20).speedup >= speedup.improvement(alpha, gamma, cost) - 1e-12


def test_plain_decoding_is_chosen_when_nothing_pays() -> None:
    choice = speedup.best_draft_length(0.3, 0.3)
    assert (choice.draft_length, choice.speedup, choice.pays) == (0, 1.0, False)


def test_ceiling_is_infinite_when_everything_is_accepted() -> None:
    assert speedup.ceiling(1.0) == math.inf


def test_operations_are_never_fewer_than_plain() -> None:
    assert speedup.operations_factor(0.0, 4) == 5.0
    assert speedup.operations_factor(1.0, 4) == 1.0
    assert speedup.operations_factor(0.8, 0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: speedup.tokens_per_step(1.3, 4), r"acceptance must be in \[0, 1\], got 1.3"),
        (lambda: speedup.tokens_per_step(math.nan, 4), r"acceptance must be in \[0, 1\], got nan"),
        (
            lambda: speedup.tokens_per_step(0.5, -1),
            "draft_length must be a whole number of tokens, 0 or more, got -1",
        ),
        (lambda: speedup.tokens_per_step(0.5, 1.5), "draft_length must be a whole number"),  # type: ignore[arg-type]
        (lambda: speedup.improvement(0.5, 4, -0.1), "draft_cost must be 0 or a positive number"),
        (lambda: speedup.improvement(0.5, 4, math.inf), "draft_cost must be 0 or a positive number"),
        (lambda: speedup.acceptance_from_tokens_per_step(6.0, 4), r"must be in \[1, 5\] at draft length 4, got 6.0"),
        (lambda: speedup.tokens_per_step_by_position([0.5, 2.0]), "acceptance at position 2 must be in"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
