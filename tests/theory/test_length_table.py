from __future__ import annotations

import json

import pytest

from outpace.errors import UsageError
from outpace.theory.length_table import length_table


def test_the_worked_example_from_two_numbers() -> None:
    found = length_table(0.8, 0.05)
    four = found.lengths[3]
    assert (round(four.tokens_per_step, 2), round(four.speedup, 2)) == (3.36, 2.80)
    assert found.best.draft_length == 8
    assert found.ceiling == pytest.approx(5.0)
    assert found.at_least == pytest.approx(1.8 / 1.05)
    assert found.verdict.startswith("speculate with 8 tokens a draft")


@pytest.mark.parametrize(("acceptance", "cost"), [(0.1, 0.2), (0.5, 0.5), (0.0, 0.0)])
def test_a_cost_that_reaches_the_acceptance_is_refused(acceptance: float, cost: float) -> None:
    found = length_table(acceptance, cost)
    assert not found.speculate
    assert f"c = {cost:.3g} is not below alpha = {acceptance:.3g}" in found.verdict


def test_dear_rows_are_refused_too() -> None:
    found = length_table(0.3, 0.1, slope=0.25)
    assert not found.speculate
    assert "each further row costs 0.25 of a pass" in found.verdict


def test_full_acceptance_has_no_ceiling_and_is_still_json() -> None:
    record = json.loads(json.dumps(length_table(1.0, 0.0).record(), allow_nan=False))
    assert record["ceiling"] is None
    assert record["best"]["draft_length"] == 64


def test_bad_numbers_are_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"acceptance must be in \[0, 1\], got 1.2"):
        length_table(1.2, 0.0)
    with pytest.raises(UsageError, match="cost must be 0 or a positive number"):
        length_table(0.5, -0.1)
