"""What the lines share: models loaded once, prompts, and a way to drive several requests in one pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from acceptance import NotRun

import outpace
from outpace import models
from outpace.api import Model
from outpace.errors import OutpaceError
from outpace.generation import together as shared
from outpace.result import Result

DATA = Path(__file__).parents[2] / "data"
EMBEDDED, TARGET, DRAFT = "smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
SEED = 20230


def file_of(name: str) -> Path:
    """Returns the model's file; NotRun when it is not on this machine."""
    try:
        return models.path(name)
    except OutpaceError as error:
        raise NotRun(str(error)) from None


@cache
def load(name: str, draft: str | None = None, threads: int = 2, context: int = 4096) -> Model:
    file_of(name)
    if draft and not Path(draft).is_file():
        file_of(draft)
    return outpace.load(name, draft=draft, threads=threads, context=context)


@cache
def prompts(file: str = "spec_bench_dev.jsonl") -> list[tuple[str, str]]:
    """Returns (task, first turn) of every prompt of a file in data/."""
    records = [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]
    return [(record["task"], record["turns"][0]) for record in records]


def per_task(count: int, file: str = "spec_bench_dev.jsonl") -> list[tuple[str, str]]:
    """Returns the first `count` prompts of each task."""
    seen: dict[str, int] = {}
    chosen = []
    for task, prompt in prompts(file):
        seen[task] = seen.get(task, 0) + 1
        if seen[task] <= count:
            chosen.append((task, prompt))
    return chosen


def together(model: Model, questions: Sequence[str], **options: Any) -> list[Result]:
    """Returns each question's result when all of them share every pass, as a server's requests do."""
    requests = [model.stream(question, **options) for question in questions]
    return shared(requests, model.target)
