"""Predicting what drafts are worth: replay is exact, and the quotient is the one of the theory."""

from __future__ import annotations

import pytest

from outpace import Model
from outpace.bench.costs import Costs, Samples
from outpace.bench.replay import ReplayTarget
from outpace.bench.tune import Replayed, record_plain, replay
from outpace.bench.tuning import tune
from outpace.errors import UsageError
from outpace.types import Draft, Prompt, Verdict

PROMPTS = ("hello there hello there hello", "one two one two one two")


def test_a_recorded_text_says_what_follows_each_node(native: Model) -> None:
    target = ReplayTarget({(1, 2): (3, 4, 5)}, native.target)
    session, _ = target.open(Prompt((1, 2)))
    draft = Draft((3, 9, 4), (-1, -1, 0), (None,) * 3)
    [scores] = target.score_many([(session, draft)])
    assert scores.logits.argmax(axis=1).tolist() == [3, 4, 0, 5]
    session.commit(draft, Verdict((0, 2), 5))
    assert session.length == 4
    with pytest.raises(UsageError, match="no recorded text"):
        target.open(Prompt((7,)))


@pytest.mark.parametrize("drafter", ["ngram", "model"])
@pytest.mark.parametrize("length", [1, 4])
def test_replay_takes_the_steps_that_decoding_takes(native: Model, drafter: str, length: int) -> None:
    answers = record_plain(native, PROMPTS, 24)
    found = replay(native, answers, PROMPTS, 24, drafter=drafter, draft_length=length)
    real = [native.generate(p, max_tokens=24, drafter=drafter, draft_length=length) for p in PROMPTS]
    assert [rows for rows, _ in found.steps] == [1 + len(step.draft) for result in real for step in result.steps]
    assert (found.drafted, found.accepted) == (sum(r.drafted for r in real), sum(r.accepted for r in real))


def test_a_prediction_is_the_sum_of_the_measured_costs() -> None:
    costs = Costs({1: 1.1, 2: 1.2, 5: 1.6})
    steps = ((5, 0.4), (5, 0.4), (2, 0.1))
    found = Replayed(steps, tokens=9, drafted=9, accepted=6, independence_error=0.0)
    assert found.seconds("ngram", costs) == pytest.approx(2 * (1.6 + 0.4) + 1.2 + 0.1)
    assert costs.speedup_at(1, 3.0, 4, 0.4) == pytest.approx(3.0 * 1.1 / 2.0)
    assert costs.speedup_at(2, 3.0, 4, 0.4) is None


def test_a_model_that_drafts_costs_what_it_takes_between_passes_and_reads_the_prompt_first() -> None:
    costs = Costs({1: 1.0, 5: 1.5}, {("model", 5): (1.7, 0.6)})
    found = Replayed(((5, 0.9), (5, 0.4), (1, 0.0)), 9, 8, 6, None, begins=frozenset({0}))
    assert found.seconds("model", costs) == pytest.approx((1.7 + 0.9) + (1.7 + 0.6) + 1.0)
    assert found.seconds("other", costs) == pytest.approx((1.5 + 0.9) + (1.5 + 0.4) + 1.0)


def test_rounds_of_every_number_of_rows_are_timed_and_a_draft_model_works_between_them(native: Model) -> None:
    samples = Samples(native, PROMPTS, (1, 2, 5), ["model"], (1, 4))
    samples.take(0.0)
    samples.take(0.0, most_rows=2)
    found = samples.costs()
    assert list(found.seconds_at) == [1, 2, 5]
    assert all(seconds > 0 for seconds in found.seconds_at.values())
    assert set(found.drafted) == {("model", 2), ("model", 5)}
    assert all(min(both) > 0 for both in found.drafted.values())
    assert len(samples.plain) == 2


def test_a_model_that_drafts_for_itself_agrees_with_itself(native: Model) -> None:
    found = tune(native, PROMPTS, max_tokens=20, lengths=(1, 3), seconds=0.0, check=False)
    assert found.agreement is not None
    assert found.agreement.mean == pytest.approx(1.0, abs=1e-6)
    assert found.agreement.accepted["coupled"] == pytest.approx(4.0, abs=1e-5)
    settings = {(s.drafter, s.draft_length): s for s in found.settings}
    assert settings["model", 3].acceptance_rate == 1.0
    assert settings["model", 3].tokens_per_step > 3
    assert found.record()["settings"][0]["measured"] is None
