"""The toy explanation: its exact columns are the theory's, its sampled ones come from the real rules."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.explain import TOLD, explain
from outpace.theory.agreement import coupled_acceptance, overlap

P = (0.5, 0.25, 0.15, 0.08, 0.02)
Q = (0.3, 0.4, 0.1, 0.15, 0.05)


def test_accepted_is_the_smaller_law_and_the_correction_makes_up_for_the_rest() -> None:
    found = explain(P, Q, samples=1)
    assert [row.accepted for row in found.rows] == pytest.approx(np.minimum(P, Q).tolist())
    assert [row.emitted for row in found.rows] == pytest.approx(list(P))
    assert sum(row.residual for row in found.rows) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rule", "acceptance"), [("rejection", overlap(P, Q)), ("coupled", coupled_acceptance(P, Q))]
)
def test_acceptance_is_the_theorys(rule: str, acceptance: float) -> None:
    assert explain(P, Q, rule=rule, samples=1).total.accepted == pytest.approx(acceptance)


@pytest.mark.parametrize("rule", TOLD)
def test_sampled_frequencies_lie_within_four_standard_errors(rule: str) -> None:
    found = explain(P, Q, rule=rule, samples=20_000, seed=5)
    assert found.largest_error < 4 * found.standard_error
    assert abs(found.total.sampled_accepted - found.total.accepted) < 4 * found.standard_error


@pytest.mark.parametrize("rule", TOLD)
def test_tokens_that_one_law_excludes_are_legal(rule: str) -> None:
    found = explain((0.5, 0.5, 0.0), (0.0, 0.5, 0.5), rule=rule, samples=500)
    assert found.rows[0].accepted == 0
    assert found.rows[2].emitted == found.rows[2].sampled == 0


def test_equal_laws_are_always_accepted() -> None:
    found = explain(P, P, samples=200, rounds=5)
    assert found.total.accepted == pytest.approx(1)
    assert found.total.sampled_accepted == pytest.approx(1)
    assert all(one.accepted == len(one.guesses) for one in found.rounds)


def test_the_same_seed_gives_the_same_figures() -> None:
    assert explain(P, Q, samples=50, seed=9) == explain(P, Q, samples=50, seed=9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": (1.0,)}, "p must have 2 to 26 probabilities, got 1"),
        ({"q": (0.5, 0.2, 0.1, 0.1, 0.0)}, "q must be non-negative and sum to 1, got sum 0.9 and least 0"),
        ({"q": (0.5, 0.5)}, "p and q must have one entry a token each, got 5 and 2"),
        ({"rule": "best"}, "rule must be one of coupled, rejection, got 'best'"),
        ({"samples": 0}, "samples must be in [1, 10000000], got 0"),
        ({"samples": 10**11}, "samples must be in [1, 10000000], got 100000000000"),
        ({"rounds": 10**9}, "rounds must be in [0, 100000], got 1000000000"),
        ({"rounds": -1}, "rounds must be in [0, 100000], got -1"),
        ({"draft_length": 0}, "draft_length must be in [1, 16], got 0"),
        ({"p": (float("nan"), 0.5, 0.3, 0.1, 0.1)}, "p must be non-negative and sum to 1, got sum nan and least nan"),
    ],
)
def test_what_is_no_law_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        explain(**({"p": P, "q": Q} | arguments))
    assert str(error.value) == message
