"""`tune --endpoint`: tokens by the server's usage, what its counters say, and what is kept when it goes away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers import Scripted, serving

from outpace.audit.server import connect
from outpace.bench.endpoint import EndpointTuning, tune_endpoint

PROMPTS = ("one", "two", "three")


def test_tokens_are_those_of_the_usage_and_acceptance_is_the_counters() -> None:
    server = Scripted()
    found = tune_endpoint(server, PROMPTS, max_tokens=16, repeats=1, loads=(1, 2))  # type: ignore[arg-type]
    assert found.stopped is None
    assert [one.tokens for one in found.answers] == [15] * 3
    assert list(found.tokens_per_second_at) == [1, 2]
    assert found.counters is not None
    assert found.counters.acceptance_rate == pytest.approx(2 / 3)
    assert found.counters.drafts == sum(server.calls[:9])
    assert found.best_lengths[0.0] == 2
    assert json.loads(json.dumps(found.record()))["counters"]["tokens_per_draft"] == pytest.approx(3)


def test_what_was_measured_is_kept_when_the_server_goes_away() -> None:
    found = tune_endpoint(Scripted(ends=7), PROMPTS, max_tokens=16, repeats=1)  # type: ignore[arg-type]
    assert found.stopped is not None
    assert "does not answer" in found.stopped
    assert len(found.answers) == 2
    assert found.decoding is not None
    assert found.counters is not None


def test_without_usage_nothing_is_counted() -> None:
    found = tune_endpoint(Scripted(usage=False), PROMPTS, max_tokens=16, repeats=1)  # type: ignore[arg-type]
    assert found.answers == []
    assert "reports no usage, and chunks are not tokens" in (found.stopped or "")


def test_an_answer_of_one_token_is_no_measurement() -> None:
    found = tune_endpoint(Scripted(pace=0.0), PROMPTS, max_tokens=1, repeats=1)  # type: ignore[arg-type]
    assert "ended after its first token" in (found.stopped or "")


@pytest.mark.parametrize(("held_up", "stops"), [(1, False), (2, True)])
def test_one_request_that_is_held_up_does_not_end_a_run(monkeypatch, held_up: int, stops: bool) -> None:
    turns = [(0.0, 9.0, 12.0)] * held_up + [(0.0, 1.0, 4.0)] * (3 - held_up)  # start, one token, all of them
    times = iter([0.0, 1.0, *(at for turn in turns for at in turn)])
    monkeypatch.setattr("outpace.bench.endpoint.clock", lambda: next(times))
    found = tune_endpoint(Scripted(pace=0.0), PROMPTS[:1], max_tokens=16, repeats=3, loads=())  # type: ignore[arg-type]
    assert [one.seconds for one in found.answers] == ([] if stops else [2.0])
    assert ("take no longer than one" in (found.stopped or "")) == stops


def test_load_stops_where_more_at_once_gives_no_more() -> None:
    found = EndpointTuning("url", "model", tokens_per_second_at={1: 10.0, 2: 18.0, 4: 17.0, 8: 30.0})
    assert found.cut_off == 2


def test_a_server_without_counters_is_timed(tiny_llama: Path) -> None:
    with serving(tiny_llama) as url:
        server = connect(url, chat_first=True)
        found = tune_endpoint(server, PROMPTS[:2], max_tokens=32, repeats=5, loads=(2,))
    assert found.stopped is None
    assert found.counters is None
    assert not server.chat
    assert all(one.tokens == 31 and one.prompt_tokens > 0 for one in found.answers)
