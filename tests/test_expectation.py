"""What control expects, against the papers' formula and against what came of it on a simulated machine."""

from __future__ import annotations

from random import Random

import pytest
from test_control import Machine, free, simulate

from outpace.control import MeasuredController
from outpace.costs import CostProfile


def test_what_is_expected_of_a_length_is_the_papers_formula():
    controller = MeasuredController(CostProfile(), "model", self_limiting=False)
    assert controller.expectation() is None
    chance = Random(1)
    simulate(controller, Machine(row=0.0, token=0.1), lambda i: chance.random() < 0.8, 600)
    found = controller.expectation()
    for length, rate in enumerate(found.rates):
        tokens = (1 - 0.8 ** (length + 1)) / 0.2
        assert rate == pytest.approx(tokens / (1 + (0.1 + 0.02) * length), rel=0.15)  # a row costs 0.02 at least
    assert found.speedup == max(found.rates) == found.rates[int(found.draft_length)]


def test_what_is_expected_of_a_drafter_that_limits_itself_is_what_came_of_late():
    controller = free()
    speed, drafted = simulate(controller, Machine(row=0.05), lambda i: True, 300, proposes=lambda i, budget: 3)
    found = controller.expectation()
    assert found.draft_length == pytest.approx(drafted, rel=0.05)
    assert found.speedup == pytest.approx(speed, rel=0.1)
