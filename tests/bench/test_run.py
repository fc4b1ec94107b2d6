"""A run: who is measured when, what is kept when something breaks, and what the record says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from outpace import Model
from outpace.bench.comparison import FASTER, UNCLEAR, compare
from outpace.bench.contender import PLAIN, Ours, Reading, arrivals_of
from outpace.bench.run import KILLED, Entrant, Run, measure, read_run
from outpace.bench.summary import ALL, summarise
from outpace.bench.tasks import Question
from outpace.errors import UsageError

QUESTIONS = tuple(Question(f"{task}/{i}", task, f"{task} {i}") for task in ("qa", "code") for i in range(2))


class Fake:
    """Takes `seconds` for each token after the first, by its own clock."""

    settle_seconds = 0.0
    load_seconds = 0.5
    version = "1"

    def __init__(self, name: str, seconds: float, before: Callable[[str], None] = lambda question: None) -> None:
        self.name = name
        self.seconds = seconds
        self.before = before

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        self.before(question.name)
        arrivals = tuple((1, 0.1 + i * self.seconds) for i in range(max_tokens))
        return Reading(tuple(range(max_tokens)), arrivals, max_tokens)

    def close(self) -> None:
        pass


def run_of(*contenders: Fake, repeats: int = 2, keep: Callable[[Run], None] = lambda run: None) -> Run:
    entrants = {c.name: Entrant(c.name, c.version, c.load_seconds) for c in contenders}
    run = Run({"commit": "abc"}, {"max_tokens": 5}, QUESTIONS, entrants)
    ids = {question.name: (1, 2) for question in QUESTIONS}
    measure(run, contenders, ids, max_tokens=5, repeats=repeats, seed=1, keep=keep)
    return run


def test_contenders_take_turns_at_every_prompt_and_in_either_order() -> None:
    seen: list[tuple[str, str]] = []
    run_of(*(Fake(name, 0.1, lambda question, name=name: seen.append((name, question))) for name in "ab"))
    assert seen[:2] == [("a", "qa/0"), ("b", "qa/0")]  # cold
    turns = [tuple(name for name, _ in seen[i : i + 2]) for i in range(2, len(seen), 2)]
    assert turns == [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"), ("b", "a"), ("a", "b"), ("b", "a"), ("a", "b")]
    assert all(seen[i][1] == seen[i + 1][1] for i in range(0, len(seen), 2))


def test_speeds_latencies_and_the_ratio_to_plain() -> None:
    lines = {(line.contender, line.task): line for line in summarise(run_of(Fake(PLAIN, 0.2), Fake("fast", 0.1)))}
    line = lines["fast", ALL]
    assert line.tokens_per_s.value == pytest.approx(10)
    assert line.over_plain is not None
    assert (line.over_plain.value, line.over_plain.low) == pytest.approx((2.0, 2.0))
    assert line.first_seconds == pytest.approx(0.1)
    assert line.token_seconds == pytest.approx((0.1, 0.1, 0.1))
    assert (line.prompts, lines["fast", "qa"].prompts) == (4, 2)
    assert lines[PLAIN, ALL].over_plain is None


def test_a_contender_that_fails_leaves_and_the_others_go_on() -> None:
    def fails(question: str) -> None:
        if question == "code/0":
            raise RuntimeError("out of luck")

    run = run_of(Fake("steady", 0.1), Fake("weak", 0.1, fails))
    assert run.entrants["weak"].failed == "RuntimeError at prompt code/0: out of luck"
    assert len(run.readings["weak"]) == 2
    assert [len(found) for found in run.readings["steady"].values()] == [2, 2, 2, 2]


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    def interrupt(question: str) -> None:
        if question == "code/1":
            raise KeyboardInterrupt

    file = tmp_path / "run.json"
    run = run_of(Fake("a", 0.1, interrupt), keep=lambda run: run.save(file))
    assert run.ended == "interrupted"
    kept = read_run(file)
    assert kept.ended == "interrupted"
    assert kept.record() == run.record()
    assert len(kept.readings["a"]) == 3


def test_what_is_kept_of_a_run_that_is_killed_says_so(tmp_path: Path) -> None:
    kept: list[str | None] = []
    run = run_of(Fake("a", 0.1), keep=lambda run: kept.append(run.ended))
    assert run.ended is None
    assert kept[-1] is None
    assert set(kept[:-1]) == {KILLED}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other"}', '{"format": "outpace bench 1"}'])
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="is no record of outpace bench run"):
        read_run(file)


def test_a_change_is_real_where_the_paired_interval_excludes_none() -> None:
    before, after = run_of(Fake(PLAIN, 0.2), Fake("x", 0.1)), run_of(Fake(PLAIN, 0.4), Fake("x", 0.1))
    changes = {(c.contender, c.task): c for c in compare(before, after)}
    real = changes["x", ALL]
    assert real.speed.value == pytest.approx(1.0)
    assert real.against_plain is not None
    assert real.against_plain.value == pytest.approx(2.0)
    assert real.verdict == FASTER
    same = {(c.contender, c.task): c for c in compare(before, before)}
    assert same["x", ALL].verdict == UNCLEAR
    with pytest.raises(UsageError, match="share no contender"):
        compare(before, run_of(Fake("other", 0.1)))


def test_tokens_are_counted_up_to_the_end_and_the_limit() -> None:
    passes = iter([[1], [2, 3], [4, 9, 5]])
    found = arrivals_of(lambda: next(passes), frozenset({9}), 10, 0.0)
    assert found.tokens == (1, 2, 3, 4, 9)
    assert [count for count, _ in found.arrivals] == [1, 2, 2]
    assert arrivals_of(lambda: [1, 2, 3], frozenset(), 4, 0.0).tokens == (1, 2, 3, 1)


def test_ours_says_the_same_text_and_prefills_every_time(native: Model) -> None:
    question = Question("q", "t", "hello there")
    ours = [Ours(native, n, {"drafter": d}, version="") for n, d in ((PLAIN, "none"), ("ngram", "ngram"))]
    run = Run({}, {}, (question,), {o.name: Entrant(o.name, "", 0.0) for o in ours})
    measure(run, ours, {"q": ()}, max_tokens=12, repeats=2, seed=5)
    assert [(c.contender, c.equal, c.prompts) for c in run.checks] == [("ngram", 1, 1)] * 2
    assert run.readings["ngram"]["q"][0].tokens == run.readings[PLAIN]["q"][0].tokens
    assert json.loads(json.dumps(run.record()))["checks"][0]["equal"] == 1


def test_a_text_that_differs_is_reported(native: Model) -> None:
    class Wrong(Ours):
        def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
            found = super().answer(question, ids, max_tokens)
            return Reading((*found.tokens[:-1], found.tokens[-1] ^ 1), found.arrivals, found.passes)

    question = Question("q", "t", "hello there")
    ours = [
        Ours(native, PLAIN, {"drafter": "none"}, version=""),
        Wrong(native, "w", {"drafter": "ngram"}, version=""),
    ]
    run = Run({}, {}, (question,), {o.name: Entrant(o.name, "", 0.0) for o in ours})
    measure(run, ours, {"q": ()}, max_tokens=8, repeats=1, seed=5)
    assert (run.checks[0].holds, run.checks[0].first_difference) == (False, "q")
