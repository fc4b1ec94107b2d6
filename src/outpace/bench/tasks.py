"""Prompts to measure on: files of JSON lines, in the shape of Spec-Bench or of your own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.errors import UsageError

UNNAMED = "prompts"
"""The task of a prompt that names none."""

LARGEST = 64 << 20
"""Bytes of a prompt file that are read at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt. name: unique in a run. task: what results are grouped by. category: a part of the task, or "".

    schema: the JSON schema that the answer must fit, as text, or "".
    """

    name: str
    task: str
    text: str
    category: str = ""
    schema: str = ""


def read_questions(paths: Sequence[Path]) -> tuple[Question, ...]:
    """Returns the prompts of all files, in order.

    A line is an object with `prompt` or with `turns`, of which the first is asked (Spec-Bench's shape), and perhaps
    `task`, `category`, `id` and a JSON `schema` of the answer. Raises UsageError, naming file and line, for any
    other, and for a file without one.
    """
    found: dict[str, Question] = {}
    for path in paths:
        before = len(found)
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            record = _record(line, f"{path}, line {number}")
            name = f"{record.get('task', UNNAMED)}/{record.get('id', f'{path.stem}:{number}')}"
            if name in found:
                raise UsageError(f"{path}, line {number}: the id {name!r:.80} occurs twice: give each its own")
            asked = _asked(record, f"{path}, line {number}")
            category = str(record.get("category") or "")
            schema = json.dumps(record["schema"]) if record.get("schema") is not None else ""
            found[name] = Question(name, str(record.get("task", UNNAMED)), asked, category, schema)
        if len(found) == before:
            raise UsageError(f"{path} has no prompt: give JSON lines with 'prompt' or 'turns'")
    return tuple(found.values())


def choose(questions: Sequence[Question], tasks: Sequence[str], per_task: int | None) -> tuple[Question, ...]:
    """Returns the first `per_task` prompts of each of the tasks; of all tasks where none is named.

    Raises UsageError for a task that has no prompt.
    """
    known = dict.fromkeys(question.task for question in questions)
    for task in tasks:
        if task not in known:
            raise UsageError(f"no prompt is of task {task!r:.80}; the files have {', '.join(known)}")
    if per_task is not None and per_task < 1:
        raise UsageError(f"prompts a task must be at least 1, got {per_task}")
    chosen = [q for task in known if not tasks or task in tasks for q in _of(questions, task)[:per_task]]
    return tuple(chosen)


def _of(questions: Sequence[Question], task: str) -> list[Question]:
    return [question for question in questions if question.task == task]


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"prompt file {path}: {error.strerror}") from None
    if len(text) > LARGEST:
        raise UsageError(f"prompt file {path} must have at most {LARGEST:,} bytes, this one has more")
    try:
        return text.decode("utf-8-sig").split(
            "\n"
        )  # a JSON string may hold what else str.splitlines takes for an end
    except UnicodeDecodeError as error:
        raise UsageError(f"prompt file {path} is not UTF-8: byte {error.start}") from None


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise UsageError(f"{where} must be an object with 'prompt' or 'turns', got {type(record).__name__}")
    return record


def _asked(record: dict[str, Any], where: str) -> str:
    turns = record.get("turns")
    text = record.get("prompt", turns[0] if isinstance(turns, list) and turns else None)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{where} needs a text as 'prompt' or as first of 'turns'")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{where} holds half of a surrogate pair, which is no text") from None
    return text
