"""The scheduler, driven turn by turn and on its thread: who waits, who leaves, whose fault it is."""

from __future__ import annotations

import json
import threading
import time
from io import StringIO
from itertools import pairwise

import pytest

pytest.importorskip("prometheus_client", reason="the extra 'serve' is not installed")

from fakes import FakeDrafter, TableTarget, raising
from outpace.api import Model
from outpace.errors import UsageError
from outpace.native.gguf import open_gguf
from outpace.serve import log
from outpace.serve.job import CHUNK, DONE, FAILED, PROMPT_READ, Job
from outpace.serve.metrics import Metrics
from outpace.serve.scheduler import Busy, Cancelled, Limits, Scheduler, ShuttingDown, TimedOut
from outpace.text import Text
from outpace.types import Draft


class Slow(TableTarget):
    """Prefills in slices of eight tokens; `order` keeps which request each slice and pass was for."""

    def __init__(self, **options):
        super().__init__(320, order=2, spread=4.0, **options)
        self.order = []

    def opening(self, prompt, taps=()):
        session, context = self.open(prompt, taps)
        try:
            yield 0
            for start in range(0, len(prompt.ids), 8):
                self.order.append(("slice", len(prompt.ids)))
                yield min(start + 8, len(prompt.ids) - 1)
        except GeneratorExit:
            session.close()
            raise
        return session, context

    def score_many(self, work):
        self.order.append(("pass", len(work)))
        return super().score_many(work)


@pytest.fixture
def text(tiny_llama):
    return Text.from_weights(open_gguf(tiny_llama))


@pytest.fixture
def model(text):
    return Model(Slow(), text)


class Heard(list):
    """What a job told."""

    @property
    def kinds(self):
        return [event.kind for event in self]

    @property
    def error(self):
        return next((event.error for event in self if event.kind == FAILED), None)

    @property
    def result(self):
        return next((event.result for event in self if event.kind == DONE), None)


def job(model, prompt="ab abc ab", *, deadline=float("inf"), **options):
    heard = Heard()
    made = Job(model.opening(prompt, raw=True, **{"max_tokens": 12, **options}), heard.append, deadline=deadline)
    return made, heard


def scheduler(model, **limits):
    return Scheduler(model, Limits(**{"tokens": 10_000, **limits}), Metrics())


def turns(one, count=1):
    """Runs so many turns on this thread."""
    for _ in range(count):
        one._collect()
        one._end_overdue()
        one._admit()
        one._prefill()
        one._round()


def finished(one, *heards, most=2000):
    for _ in range(most):
        if all(heard.result or heard.error for heard in heards):
            return
        turns(one)
    raise AssertionError("the jobs did not end")


def test_a_job_tells_of_its_prompt_its_rounds_and_its_end(model):
    one = scheduler(model)
    made, heard = job(model, drafter="ngram", draft_length=3)
    one.submit([made])
    finished(one, heard)
    assert heard.kinds[0] == PROMPT_READ
    assert heard.kinds[-1] == DONE
    assert set(heard.kinds[1:-1]) == {CHUNK}
    assert "".join(e.chunk.text for e in heard if e.kind == CHUNK) == heard.result.text
    assert model.target.open_sessions == 0


def test_the_text_is_that_of_a_run_alone(model):
    one = scheduler(model)
    asked = [{"prompt": "ab " * (i + 1), "temperature": i % 2, "seed": i, "max_tokens": 5 + 7 * i} for i in range(6)]
    pairs = [job(model, **options) for options in asked]
    for made, _ in pairs:
        one.submit([made])
    finished(one, *(heard for _, heard in pairs))
    for options, (_, heard) in zip(asked, pairs, strict=True):
        alone = model.generate(options.pop("prompt"), raw=True, **options)
        assert heard.result.tokens == alone.tokens


def test_streams_go_on_while_a_long_prompt_is_read(model):
    one = scheduler(model)
    running, _ = job(model, max_tokens=200)
    one.submit([running])
    turns(one, 4)
    model.target.order.clear()
    long, _ = job(model, "word " * 60)
    one.submit([long])
    turns(one, 12)
    kinds = [kind for kind, _ in model.target.order]
    assert "slice" in kinds
    assert all(a != "slice" or b != "slice" for a, b in pairwise(kinds))


def test_short_prompts_do_not_wait_for_a_long_one(model):
    one = scheduler(model)
    long, late = job(model, "word " * 300)
    short, soon = job(model, "ab")
    one.submit([long, short])
    while not soon.result:
        turns(one)
    assert not late.kinds


def test_no_more_run_than_there_are_slots(model):
    one = scheduler(model, slots=2)
    pairs = [job(model) for _ in range(5)]
    one.submit([made for made, _ in pairs])
    finished(one, *(heard for _, heard in pairs))
    assert max(count for kind, count in model.target.order if kind == "pass") == 2


def test_what_waits_is_refused_beyond_the_queue(model):
    one = scheduler(model, slots=1, queue=2)
    one.submit([job(model)[0] for _ in range(3)])
    with pytest.raises(Busy, match="2 requests are waiting"):
        one.submit([job(model)[0]])


def test_requests_hold_no_more_tokens_than_the_limit(model):
    one = scheduler(model, tokens=60)
    pairs = [job(model, "ab", max_tokens=40) for _ in range(3)]
    one.submit([made for made, _ in pairs])
    finished(one, *(heard for _, heard in pairs))
    assert max(count for kind, count in model.target.order if kind == "pass") == 1


def test_one_that_asks_for_more_tokens_than_the_context_holds_up_nobody(model):
    one = scheduler(model, tokens=2 * model.target.max_length)
    running, _ = job(model, max_tokens=200)
    greedy, _ = job(model, "abc", max_tokens=10**9)
    assert greedy.opening.room == model.target.max_length
    short, heard = job(model)
    one.submit([running, greedy, short])
    turns(one, 20)
    assert len(one._running) + len(one._opening) + bool(heard.result) == 3


def test_more_choices_than_run_and_wait_are_never_taken(model):
    one = scheduler(model, slots=1, queue=2)
    with pytest.raises(UsageError, match="at most 3, what this server runs and queues, got 4"):
        one.submit([job(model)[0] for _ in range(4)])


@pytest.mark.parametrize("started", [0, 1, 3])
def test_a_cancelled_job_is_gone_at_the_next_turn(model, started):
    one = scheduler(model)
    made, heard = job(model, "word " * 20, max_tokens=500)
    other, kept = job(model, "ab", max_tokens=30)
    one.submit([made, other])
    turns(one, 12 * started)
    one.cancel(made)
    turns(one)
    assert isinstance(heard.error, Cancelled)
    finished(one, kept)
    assert kept.result.tokens == model.generate("ab", raw=True, max_tokens=30).tokens
    assert model.target.open_sessions == 0


def test_a_job_beyond_its_time_fails_alone(model):
    one = scheduler(model)
    late, heard = job(model, deadline=time.perf_counter() - 1)
    other, kept = job(model)
    one.submit([late, other])
    finished(one, heard, kept)
    assert isinstance(heard.error, TimedOut)
    assert kept.result


def test_a_drafter_that_raises_leaves_its_request_plain(model, monkeypatch):
    monkeypatch.setitem(model._drafters, "ngram", raising(320, after=3))
    one = scheduler(model)
    made, heard = job(model, drafter="ngram", draft_length=2, max_tokens=20)
    one.submit([made])
    finished(one, heard)
    assert heard.result.tokens == model.generate("ab abc ab", raw=True, max_tokens=20, drafter="none").tokens
    assert "the drafter broke" in heard.result.fault


def test_a_pass_that_fails_is_retried_one_by_one(model, monkeypatch):
    one = scheduler(model)
    bad, failed = job(model, "ab", max_tokens=30)
    good, kept = job(model, "abc", max_tokens=30)
    one.submit([bad, good])
    turns(one, 6)
    poison = bad.generation.round.session
    scored = model.target.score_many

    def score_many(work):
        if any(session is poison for session, _ in work):
            raise RuntimeError("this session broke")
        return scored(work)

    monkeypatch.setattr(model.target, "score_many", score_many)
    finished(one, failed, kept)
    assert "this session broke" in str(failed.error)
    assert kept.result.tokens == model.generate("abc", raw=True, max_tokens=30).tokens


def test_requests_of_one_drafter_share_its_passes(model, monkeypatch):
    calls = []
    shared = FakeDrafter("shared", 320, lambda tokens, budget: Draft.chain([1]))
    propose_many = shared.propose_many
    monkeypatch.setattr(shared, "propose_many", lambda work: calls.append(len(work)) or propose_many(work))
    monkeypatch.setitem(model._drafters, "ngram", shared)
    one = scheduler(model)
    pairs = [job(model, drafter="ngram", draft_length=2, max_tokens=30) for _ in range(3)]
    one.submit([made for made, _ in pairs])
    finished(one, *(heard for _, heard in pairs))
    assert max(calls) == 3


def test_draining_finishes_what_is_open_and_takes_nothing_new(model):
    one = scheduler(model)
    pairs = [job(model, max_tokens=50) for _ in range(4)]
    one.submit([made for made, _ in pairs])
    one.start()
    one.stop(grace_seconds=60)
    assert all(heard.result for _, heard in pairs)
    with pytest.raises(ShuttingDown):
        one.submit([job(model)[0]])


def test_what_outlasts_the_grace_is_told(text):
    target = Slow(logits=lambda path: [0.0] * 5 + [9.0] + [0.0] * 314, max_length=1 << 20)
    model = Model(target, text)
    one = scheduler(model, tokens=1 << 21)
    made, heard = job(model, max_tokens=1 << 19, drafter="none")
    one.submit([made])
    one.start()
    one.stop(grace_seconds=0.05)
    assert isinstance(heard.error, ShuttingDown)
    assert target.open_sessions == 0


def test_jobs_from_many_threads_all_end(model):
    one = scheduler(model, slots=3, queue=100)
    one.start()
    pairs = [job(model, "ab " * (i % 5 + 1), seed=i, temperature=1) for i in range(24)]
    threads = [threading.Thread(target=one.submit, args=([made],)) for made, _ in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.stop(grace_seconds=60)
    assert all(heard.result for _, heard in pairs)
    assert model.target.open_sessions == 0


def test_what_ends_is_logged_without_a_word_of_its_text(model):
    written = StringIO()
    listener = log.start(written)
    try:
        one = scheduler(model)
        made, heard = job(model, "ab abc ab")
        late, failed = job(model, deadline=time.perf_counter() - 1)
        one.submit([made, late])
        finished(one, heard, failed)
    finally:
        listener.stop()
        log.LOGGER.handlers.clear()
    first, second = sorted(
        (json.loads(line) for line in written.getvalue().splitlines()), key=lambda said: "error" in said
    )
    assert first["finish"] == heard.result.finish
    assert first["tokens"] == len(heard.result.tokens)
    assert second["error"] == "TimedOut"
    assert "ab" not in written.getvalue().replace("tab", "")
