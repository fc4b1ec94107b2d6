"""The bootstrap over prompts."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.bench.intervals import Interval, of_totals, of_turns, percentile, rate, rate_ratio


def test_a_rate_is_that_of_the_totals() -> None:
    found = rate([(10, 1.0), (10, 3.0)])
    assert found.value == pytest.approx(5.0)
    assert found.low is not None
    assert found.high is not None
    assert 3.3 < found.low < 5.0 < found.high <= 10.0


def test_one_prompt_has_no_interval() -> None:
    assert rate([(10, 2.0)]) == Interval(5.0)
    assert not Interval(5.0).excludes(1.0)


def test_prompts_that_differ_alike_in_both_leave_no_doubt_about_the_ratio() -> None:
    rows = [(n, n * 0.5, n, n * 1.0) for n in (1.0, 5.0, 40.0)]
    found = rate_ratio(rows)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert found.excludes(1.0)


def test_the_interval_of_a_mean_has_the_width_that_theory_gives() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(10.0, 1.0, 400)
    found = of_totals([(v, 1.0) for v in values], lambda t: t[..., 0] / t[..., 1])
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_a_machine_that_changes_its_speed_between_turns_leaves_the_ratio() -> None:
    assert of_turns([3.0, 3.0, 3.0], [2.0, 2.0, 2.0]) == (3.0, 2.0)
    # Half as long from the middle of the second turn on: medians of 3 and 1 would be a ratio of 3.
    plain, ours = of_turns([3.0, 3.0, 1.5], [2.0, 1.0, 1.0])
    assert (plain, ours) == (1.5, 1.0)


def test_a_percentile_counts_weights() -> None:
    assert percentile([1.0, 2.0, 3.0], [1, 1, 8], 0.5) == 3.0
    assert percentile([3.0, 1.0, 2.0], [1, 1, 1], 0.5) == 2.0
    assert percentile([4.0], [2], 0.99) == 4.0
