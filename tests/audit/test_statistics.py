"""The test's own figures against printed tables."""

from __future__ import annotations

import pytest

from outpace.audit.statistics import (
    chi_square_tail,
    critical_value,
    fit,
    needed_noncentrality,
    power,
    texts_to_see,
)


@pytest.mark.parametrize(
    ("freedom", "level", "value"),
    [(1, 0.05, 3.841), (1, 0.001, 10.828), (5, 0.01, 15.086), (26, 0.001, 54.052), (100, 0.05, 124.342)],
)
def test_critical_values_are_the_tables(freedom, level, value):
    assert critical_value(freedom, level) == pytest.approx(value, abs=6e-4)
    assert chi_square_tail(value, freedom) == pytest.approx(level, rel=1e-3)


@pytest.mark.parametrize(
    ("freedom", "level", "wanted", "value"),
    [(1, 0.05, 0.90, 10.507), (4, 0.05, 0.90, 15.405), (10, 0.01, 0.95, 31.5)],
)
def test_noncentralities_are_the_tables(freedom, level, wanted, value):
    found = needed_noncentrality(freedom, level, wanted)
    assert found == pytest.approx(value, rel=0.02)
    assert power(freedom, level, found) == pytest.approx(wanted, abs=1e-6)


def test_power_without_a_difference_is_the_level():
    assert power(7, 0.01, 0.0) == pytest.approx(0.01, rel=1e-9)


def test_a_draw_of_probability_0_is_never_accepted():
    found = fit({"a": 500, "b": 499, "c": 1}, {"a": 0.5, "b": 0.5, "c": 0.0}, 0.001)
    assert found.statistic < 1
    assert found.impossible == 1
    assert not found.holds


def test_rare_cells_are_pooled():
    law = {"a": 0.9, "b": 0.096, **{str(i): 0.001 for i in range(4)}}
    found = fit({"a": 900, "b": 96, "0": 4}, law, 0.001)
    assert (found.cells, found.holds) == (2, True)
    assert found.statistic == pytest.approx(0)


def test_what_it_says_it_can_see_it_sees():
    law = dict.fromkeys(range(8), 1 / 8)
    level, n = 1e-4, 4000
    shift = fit(dict.fromkeys(range(8), n // 8), law, level).detectable
    counts = {i: round(n / 8 * (1 + (2 * shift if i % 2 else -2 * shift))) for i in range(8)}
    assert not fit(counts, law, level).holds


def test_the_texts_that_a_variation_takes_are_those_whose_test_sees_it():
    n = texts_to_see(0.03, 8, 1e-4)
    law = dict.fromkeys(range(8), 1 / 8)
    assert fit(dict.fromkeys(range(8), n // 8), law, 1e-4).detectable == pytest.approx(0.03, rel=1e-3)
