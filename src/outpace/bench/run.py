"""A benchmark run: all answer the same prompts, in turns, and what was measured is kept whatever happens next."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outpace.bench.contender import PLAIN, Contender, Ours, Reading
from outpace.bench.tasks import Question
from outpace.errors import UsageError

FORMAT = "outpace bench 1"

Progress = Callable[[float, str], None]
"""Told the fraction done and what comes next."""


@dataclass(frozen=True, slots=True)
class Check:
    """One setting against plain decoding: at how many prompts the tokens are the same."""

    contender: str
    what: str
    equal: int
    prompts: int
    first_difference: str | None = None

    @property
    def holds(self) -> bool:
        return self.equal == self.prompts


@dataclass(frozen=True, slots=True)
class Entrant:
    """One contender's row of the record. cold: its first answer of the process, not among the readings.

    failed: why it left the run, None if it stayed to the end.
    """

    name: str
    version: str
    load_seconds: float
    cold: Reading | None = None
    failed: str | None = None


INTERRUPTED = "interrupted"
KILLED = "its process ended before it was done"


@dataclass(slots=True)
class Run:
    """What was measured so far. readings: contender -> prompt -> one a repeat. ended: why it stopped early."""

    provenance: Mapping[str, Any]
    settings: Mapping[str, Any]
    questions: tuple[Question, ...]
    entrants: dict[str, Entrant]
    readings: dict[str, dict[str, list[Reading]]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ended: str | None = None

    def record(self) -> dict[str, Any]:
        """Returns the run as JSON has it."""
        return {
            "format": FORMAT,
            "ended": self.ended,
            "provenance": dict(self.provenance),
            "settings": dict(self.settings),
            "questions": [{"name": q.name, "task": q.task, "text": q.text} for q in self.questions],
            "entrants": [
                {
                    "name": one.name,
                    "version": one.version,
                    "load_seconds": one.load_seconds,
                    "cold": None if one.cold is None else one.cold.record(),
                    "failed": one.failed,
                }
                for one in self.entrants.values()
            ],
            "missing": self.missing,
            "readings": {
                name: {question: [one.record() for one in readings] for question, readings in answers.items()}
                for name, answers in self.readings.items()
            },
            "checks": [
                {
                    "contender": c.contender,
                    "what": c.what,
                    "equal": c.equal,
                    "prompts": c.prompts,
                    "first_difference": c.first_difference,
                }
                for c in self.checks
            ],
        }

    def save(self, path: Path) -> None:
        """Writes the record whole or not at all."""
        work = path.with_name(f".{path.name}.part")
        try:
            work.write_text(json.dumps(self.record(), ensure_ascii=False, allow_nan=False), encoding="utf-8")
            os.replace(work, path)
        finally:
            work.unlink(missing_ok=True)


def read_run(path: Path) -> Run:
    """Returns a saved run. Raises UsageError for a file that is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']!r:.40}")
        return _run_of(record)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no record of outpace bench run ({type(error).__name__}: {error})") from None


def _run_of(record: Mapping[str, Any]) -> Run:
    entrants = [
        Entrant(
            str(one["name"]),
            str(one["version"]),
            float(one["load_seconds"]),
            None if one["cold"] is None else Reading.from_record(one["cold"]),
            one["failed"],
        )
        for one in record["entrants"]
    ]
    return Run(
        dict(record["provenance"]),
        dict(record["settings"]),
        tuple(Question(str(q["name"]), str(q["task"]), str(q["text"])) for q in record["questions"]),
        {one.name: one for one in entrants},
        {
            name: {q: [Reading.from_record(one) for one in readings] for q, readings in answers.items()}
            for name, answers in record["readings"].items()
        },
        [
            Check(str(c["contender"]), str(c["what"]), int(c["equal"]), int(c["prompts"]), c["first_difference"])
            for c in record["checks"]
        ],
        dict(record["missing"]),
        record["ended"],
    )


def measure(
    run: Run,
    contenders: Sequence[Contender],
    ids: Mapping[str, Sequence[int]],
    *,
    max_tokens: int,
    repeats: int,
    seed: int,
    keep: Callable[[Run], None] = lambda run: None,
    progress: Progress = lambda fraction, what: None,
) -> None:
    """Fills `run`: cold answers, `repeats` turns over all prompts, then the check of sampled text.

    ids: the prompts by name, through the chat template. At each prompt all contenders answer, every other time in
    reverse order, so that a machine that slows down does so for all alike. keep: called after each prompt. A
    contender that fails leaves the run with its reason; KeyboardInterrupt ends the run, and what was measured stays.
    """
    active = list(contenders)
    run.ended = KILLED  # what is kept on the way says so, should nothing else be
    parts = _Parts(run, active, ids, max_tokens, keep, progress, len(run.questions) * (repeats + 1) + 1)
    try:
        for contender in contenders:
            parts.cold(contender)
        for repeat in range(repeats):
            for number, question in enumerate(run.questions):
                parts.ask(question, backwards=bool((repeat + number) % 2))
        parts.compare_greedy()
        parts.compare_sampled(seed)
        run.ended = None
    except KeyboardInterrupt:
        run.ended = INTERRUPTED
    keep(run)


@dataclass(slots=True)
class _Parts:
    run: Run
    active: list[Contender]
    ids: Mapping[str, Sequence[int]]
    max_tokens: int
    keep: Callable[[Run], None]
    progress: Progress
    stages: int
    done: int = 0

    def cold(self, contender: Contender) -> None:
        """The first answer of the process: pages are touched, code is compiled, thread pools start."""
        self.progress(0.0, f"{contender.name}, cold")
        question = self.run.questions[0]
        reading = self._answer(contender, question)
        if reading is not None:
            self.run.entrants[contender.name] = _with(self.run.entrants[contender.name], cold=reading)

    def ask(self, question: Question, *, backwards: bool) -> None:
        self._step(question.name)
        for contender in list(reversed(self.active) if backwards else self.active):
            reading = self._answer(contender, question)
            if reading is not None:
                self.run.readings.setdefault(contender.name, {}).setdefault(question.name, []).append(reading)
        self.keep(self.run)

    def _answer(self, contender: Contender, question: Question) -> Reading | None:
        try:
            reading = contender.answer(question, self.ids[question.name], self.max_tokens)
        except Exception as error:  # one engine's fault must not cost the others their figures
            self.active.remove(contender)
            why = f"{type(error).__name__} at prompt {question.name}: {error}"
            self.run.entrants[contender.name] = _with(self.run.entrants[contender.name], failed=why)
            return None
        if contender.settle_seconds:
            time.sleep(contender.settle_seconds)
        return reading

    def _step(self, what: str) -> None:
        self.progress(self.done / self.stages, what)
        self.done += 1

    def _held(self) -> list[Ours]:
        """Those of ours whose text must be plain decoding's."""
        return [c for c in self.active if isinstance(c, Ours) and c.keeps_text and c.name != PLAIN]

    def compare_greedy(self) -> None:
        plain = self.run.readings.get(PLAIN, {})
        for ours in self._held():
            answers = self.run.readings.get(ours.name, {})
            same = {
                name: len({one.tokens for one in (*readings, *plain[name])}) == 1
                for name, readings in answers.items()
                if name in plain
            }
            self.run.checks.append(_check(ours.name, "temperature 0, all repeats", same))

    def compare_sampled(self, seed: int) -> None:
        """One text a prompt at temperature 1: the seed's, whoever drafts."""
        held = self._held()
        plain = next((c for c in self.active if isinstance(c, Ours) and c.name == PLAIN), None)
        if plain is None or not held:
            return
        same: dict[str, dict[str, bool]] = {ours.name: {} for ours in held}
        for number, question in enumerate(self.run.questions):
            self._step(f"{question.name}, temperature 1")
            expected = plain.sampled(question, self.max_tokens, seed + number)
            for ours in held:
                same[ours.name][question.name] = ours.sampled(question, self.max_tokens, seed + number) == expected
        self.run.checks += [_check(name, f"temperature 1, seeds from {seed}", found) for name, found in same.items()]


def _check(contender: str, what: str, same: Mapping[str, bool]) -> Check:
    different = next((name for name, equal in same.items() if not equal), None)
    return Check(contender, what, sum(same.values()), len(same), different)


def _with(entrant: Entrant, *, cold: Reading | None = None, failed: str | None = None) -> Entrant:
    return Entrant(
        entrant.name, entrant.version, entrant.load_seconds, cold or entrant.cold, failed or entrant.failed
    )
