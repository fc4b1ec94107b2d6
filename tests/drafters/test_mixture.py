"""The mixture: free drafts where they promise most, a model's where its record and its seconds do."""

from __future__ import annotations

import pytest

from fakes import TableTarget, plain, start
from outpace.control import MeasuredController
from outpace.costs import CostProfile
from outpace.decode import generate
from outpace.drafters.mixture import FIRST_GAP, Record, make
from outpace.types import EMPTY, Budget

PRICES = (0.05,) * 15


def budget(tokens_per_second=100.0):
    return Budget(15, 15, prices=PRICES, tokens_per_second=tokens_per_second)


def record(accepted, seconds, rounds=30, drafted=4):
    one = Record()
    for _ in range(rounds):
        one.drafted(drafted, drafted * seconds)
        one.observe(drafted, accepted)
    return one


def test_the_length_follows_acceptance_and_seconds():
    good, dear, wrong = record(4, 0.001), record(4, 0.02), record(0, 0.001)
    assert good.best(budget(), PRICES)[1] == 8
    assert dear.best(budget(), PRICES) == (0.0, 0)
    assert wrong.best(budget(), PRICES) == (0.0, 0)
    assert good.best(budget(10_000.0), PRICES) == (0.0, 0)


def test_a_poor_member_is_probed_ever_more_rarely():
    poor = record(0, 0.001)
    gap = poor.gap
    assert gap > FIRST_GAP
    poor.idle = gap
    assert poor.best(budget(), PRICES) == (0.0, 2)
    poor.observe(2, 0)
    assert poor.gap == min(2 * gap, 256)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_its_text_is_the_plain_one_under_measured_control(temperature):
    target = TableTarget(8)
    for draft in (TableTarget(8), TableTarget(8, order=1, seed=9), None):
        drafter = make(target, draft)
        one = start(target, (1, 2, 3), drafter, temperature=temperature, max_tokens=150)
        one.controller = MeasuredController(CostProfile(), "mixture", self_limiting=True)
        assert list(generate(one, target, drafter))
        assert one.fault is None
        assert one.committed == plain(target, (1, 2, 3), temperature=temperature, max_tokens=150)


def test_without_a_model_it_is_suffixes():
    drafter = make(TableTarget(6))
    assert drafter.weight_bytes == 0
    one = start(TableTarget(6), (1, 2, 3, 1, 2), drafter)
    [draft] = drafter.propose_many([(one.drafting, budget())])
    assert draft.tokens[0] == 3
    assert drafter.propose_many([(one.drafting, Budget.chain(0))]) == [EMPTY]
