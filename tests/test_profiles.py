"""Costs are measured once, kept, and measured again where what was kept cannot be believed."""

from __future__ import annotations

import json

import pytest

from fakes import TableTarget
from outpace import profiles
from outpace.costs import CostProfile


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "folder", lambda: tmp_path)
    return tmp_path


def test_a_profile_is_measured_once_and_then_read(kept):
    target = TableTarget()
    first = profiles.profile(target)
    passes = target.passes
    assert passes > len(profiles.ROWS)
    assert profiles.profile(target).record() == first.record()
    assert target.passes == passes
    assert target.open_sessions == 0


def test_another_model_or_thread_count_has_its_own(kept):
    one, other = TableTarget(), TableTarget()
    other.threads = 2
    assert len({profiles.key(one), profiles.key(other), profiles.key(TableTarget(seed=1))}) == 3


@pytest.mark.parametrize(
    "spoilt",
    ["", "[]", "{}", '{"plain_seconds": 0, "score": {}}', '{"plain_seconds": NaN, "score": {}}',
     '{"plain_seconds": 1, "score": {"-3": [1]}}', '{"plain_seconds": 1, "score": {"2": [-1]}}',
     '{"plain_seconds": 1, "score": {"2": "x"}}', '{"plain_seconds": "x", "score": {}}'],
)  # fmt: skip
def test_a_spoilt_file_is_measured_again(kept, spoilt):
    target = TableTarget()
    (kept / f"{profiles.key(target)}.json").write_text(spoilt)
    assert profiles.profile(target).score.longest == max(profiles.ROWS)
    assert "plain_seconds" in json.loads((kept / f"{profiles.key(target)}.json").read_text())


def test_where_nothing_can_be_written_costs_are_still_known(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(profiles, "folder", lambda: tmp_path / "file" / "below")
    assert profiles.profile(TableTarget()).plain_seconds > 0


def test_a_short_context_is_measured_as_far_as_it_goes(kept):
    assert profiles.profile(TableTarget(max_length=8)).score.longest == 4


def test_a_drafts_tokens_cost_what_its_passes_do(kept):
    costs = profiles.profile(TableTarget(), TableTarget(order=1))
    assert costs.drafting("model")(4) > 0


def test_a_record_comes_back():
    profile = CostProfile()
    for rows, seconds in ((1, 1.0), (4, 1.2), (1, 1.0), (4, 1.3), (1, 1.0)):
        profile.observe(rows, seconds)
    assert CostProfile.of(json.loads(json.dumps(profile.record()))).score(4) == profile.score(4)


def test_costs_measured_with_care_stand_instead_of_what_was_known(kept):
    target = TableTarget()
    profiles.profile(target)
    file = profiles.learn(target, {1: 0.010, 4: 0.011, 8: 0.020})
    assert file.parent == kept
    costs = profiles.profile(target)
    assert costs.plain_seconds == pytest.approx(0.010)
    assert [costs.score(rows) for rows in (4, 6, 8)] == pytest.approx([1.1, 1.55, 2.0])
