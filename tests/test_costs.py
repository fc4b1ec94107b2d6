"""What passes cost, told from their times alone: no clock is read, so every figure is exact and repeatable."""

from __future__ import annotations

from random import Random

import pytest

from outpace.costs import LATE, CostCurve, CostProfile


def test_a_cost_curve_is_a_line_where_nothing_was_measured():
    curve = CostCurve((1, 1.0), 0.1)
    assert curve(3) == pytest.approx(1.2)
    curve.observe(5, 2.0)
    assert curve(1) == 1.0
    assert curve(3) == 1.5
    assert curve(7) == 2.5


def test_outliers_do_not_move_a_cost_and_a_lasting_change_does():
    curve = CostCurve((1, 1.0), 0.1)
    for cost in (50.0, 1.2, 1.2, 90.0, 1.2, 1.2, 70.0):
        curve.observe(4, cost)
    assert curve(4) == 1.2
    for _ in range(8):
        curve.observe(4, 2.0)
    assert curve(4) == 2.0


def test_costs_are_compared_at_the_machines_speed_of_the_moment():
    """Passes of one row at one speed and of five at half of it do not make five rows look dear."""
    profile = CostProfile()
    for speed in (1.0, 0.5, 2.0, 1.0, 0.3):
        for _ in range(30):
            profile.observe(1, 1.0 / speed)
            profile.observe(5, 1.2 / speed)
    assert profile.score(5) == pytest.approx(1.2, rel=0.02)
    assert profile.plain_seconds == pytest.approx(1 / 0.3, rel=0.02)


def test_requests_that_share_a_pass_report_it_once():
    profile = CostProfile()
    profile.observe(1, 1.0)
    for score in (2.0, 2.0, 2.0, 8.0, 2.1, 2.2):
        profile.observe_shared(3, 3, score, 0.0)
        profile.observe_shared(3, 3, score, 0.1)
    assert profile.cost(3, 0) == pytest.approx(2.2)  # the median of 2.0, 8.0, 2.1 and 2.2, the upper of two


def test_one_slow_pass_in_company_is_not_believed_and_several_are():
    profile = CostProfile()
    profile.observe(1, 1.0)
    for i in range(30):
        profile.observe_shared(4, 4, 2.0 + i / 1000, 0.0)
    profile.observe_shared(4, 8, 50.0, 0.0)
    assert profile.cost(4, 1) < 3.0
    for i in range(2 * LATE):
        profile.observe_shared(4, 8, 9.0 + i / 1000, 0.0)
        profile.observe_shared(4, 4, 2.0 + i / 1000, 0.0)
    assert profile.cost(4, 1) / profile.cost(4, 0) > 4


def test_one_drafted_row_in_company_is_not_taken_for_none():
    """Sixteen rows are a tile of the kernels', and the seventeenth begins another."""
    profile = CostProfile()
    profile.observe(1, 1.0)
    for i in range(2 * LATE):
        profile.observe_shared(16, 16, 4.0 + i / 1000, 0.0)
        profile.observe_shared(16, 17, 5.6 + i / 1000, 0.0)
    assert profile.cost(16, 1) / profile.cost(16, 0) >= 1.35


def test_what_rows_cost_in_company_does_not_touch_what_they_cost_alone():
    profile = CostProfile()
    profile.observe(1, 1.0)
    profile.observe(4, 1.2)
    for score in (3.0, 3.01, 3.02):
        profile.observe_shared(4, 4, score, 0.0)
    assert profile.cost(1, 3) == profile.score(4) == 1.2
    assert profile.cost(4, 0) == 3.01
    assert profile.cost(8, 0) > 3.01  # a larger company was not measured yet, and costs more


def test_costs_stay_true_when_only_drafts_are_seen_and_the_machine_changes_its_ways():
    """Now rows are dear and a pass is fast, now the other way round; a plain pass is seen once in 65."""
    profile, chance = CostProfile(), Random(0)
    moods = [(1.0, 0.15), (1.5, 0.04)]

    def seconds(rows, mood):
        plain, row = mood
        return plain * (1 + row * (rows - 1)) * (1 + 0.05 * abs(chance.gauss(0, 1)))

    for i in range(30_000):
        mood = moods[i // 700 % 2]
        rows = 1 if i % 65 < 1 or i < 5 else chance.choice((4, 5, 5, 6, 8))
        profile.observe(rows, seconds(rows, mood))
        if i > 1000 and i % 700 > 400:
            assert profile.plain_seconds == pytest.approx(mood[0], rel=0.25)
            for rows in (4, 5, 6, 8):
                assert profile.score(rows) == pytest.approx(1 + mood[1] * (rows - 1), rel=0.25)


def test_all_counts_become_dearer_as_soon_as_some_do():
    curve = CostCurve((1, 1.0), 0.06)
    for _ in range(LATE):
        for rows in (2, 5, 8, 12):
            curve.observe(rows, 1 + 0.02 * (rows - 1))
    for _ in range(4):
        curve.observe(5, 1 + 0.1 * 4)
    assert curve(8) == pytest.approx(1.7, rel=0.15)
    assert curve(12) == pytest.approx(2.1, rel=0.2)
    for _ in range(8):
        curve.observe(5, 1 + 0.02 * 4)
    assert curve(8) == pytest.approx(1.14, rel=0.05)


def test_costs_in_company_stay_true_too():
    profile, chance = CostProfile(), Random(0)
    for i in range(30_000):
        plain, row = [(2.0, 0.15), (3.0, 0.04)][i // 700 % 2]
        drafted = 0 if i % 65 < 1 or i < 8 else chance.choice((3, 4, 4, 6))
        profile.observe_shared(
            4, 4 + drafted, plain * (1 + row * drafted) * (1 + 0.05 * abs(chance.gauss(0, 1))), 0.0
        )
        if i > 1000 and i % 700 > 400:
            for drafted in (1, 1.5):
                assert profile.cost(4, drafted) / profile.cost(4, 0) == pytest.approx(1 + 4 * drafted * row, rel=0.25)


def test_a_count_that_is_no_longer_seen_keeps_its_cost_whatever_looks_find():
    """Slow passes among those with drafts make the machine look slower, time and again, until a plain one is seen."""
    profile, chance = CostProfile(), Random(0)
    for _ in range(30):
        profile.observe(1, 1.0)
        profile.observe(8, 1.4)
    for i in range(20_000):
        profile.observe(1 if i % 20 == 0 else 2, (1.0 if i % 20 == 0 else 1.1) * chance.choice((1, 1, 1, 1, 1.9)))
    assert profile.score(8) == pytest.approx(1.4, rel=0.15)
    assert profile.score(2) == pytest.approx(1.1, rel=0.15)
    assert profile.plain_seconds == pytest.approx(1.1, rel=0.35)
