"""The mixture: free drafts where they promise most, a model's where its record and its seconds do."""

from __future__ import annotations

import pytest

from fakes import TableTarget, plain, start
from outpace.control import MeasuredController
from outpace.costs import CostProfile
from outpace.decode import generate
from outpace.drafters.mixture import FIRST_GAP, MixtureSession, Record, along_the_chain, make, promised
from outpace.types import EMPTY, Budget, Draft, Prompt, Step, Timing, Verdict

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


def test_a_cheap_member_promises_more_and_a_dear_one_nothing():
    cheap, dear = promised(0.05, PRICES), promised(0.2, PRICES)
    assert 1.0 < dear + 1.0 < cheap + 1.0 < 1.0 / (1.0 - 0.7)
    assert promised(0.5, PRICES) == 0.0
    assert promised(0.2, (0.5,) * 15) == 0.0


class Suffixes:
    """Free drafts that gain as much as they are told to."""

    def __init__(self, gained: float) -> None:
        self.gained = gained

    def propose(self, budget: Budget) -> Draft:
        return Draft.chain((1,))

    def gain(self, prices: object) -> float:
        return self.gained


def begins(gained: float, prompt: int, share: float = 0.2, rounds: int = 64) -> int | None:
    """Returns the round in which a member's first draft is asked for."""
    session = MixtureSession(Suffixes(gained), [None], [share], Prompt(tuple(range(prompt))))
    return next((i for i in range(rounds) if session.choose(budget())[0] == EMPTY), None)


def test_a_member_begins_the_later_the_longer_the_prompt():
    assert begins(0.0, 40) == 0
    late = begins(0.0, 200)
    assert late is not None
    assert 3 <= late < begins(0.0, 400)


def test_where_suffixes_gain_as_much_no_model_reads_a_long_prompt():
    assert begins(promised(0.2, PRICES), 200) is None
    assert begins(promised(0.2, PRICES) / 2, 200) > begins(0.0, 200)


@pytest.mark.parametrize(
    ("parents", "path", "expected"),
    [
        ((-1, 0, 1), (0, 1), (3, 2)),
        ((-1, 0, 1), (), (3, 0)),
        ((-1, 0, 1, -1, 0), (3,), (3, 0)),  # the runner-up of the first guess
        ((-1, 0, 1, -1, 0), (0, 4), (3, 1)),  # and of the second
        ((-1, 0, 1, -1, 0), (0, 1, 2), (3, 3)),
        ((-1, -1), (1,), (1, 0)),
    ],
)
def test_a_record_counts_guesses_and_no_runners_up(parents, path, expected):
    draft = Draft(tuple(range(len(parents))), parents, (None,) * len(parents))
    verdict = Verdict(path, 0)
    step = Step(draft, verdict, verdict.tokens(draft), None, Timing())
    assert along_the_chain(step) == expected
