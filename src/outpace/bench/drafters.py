"""Drafters over task files: speed against plain decoding, interleaved in one run, and where the time went.

A prompt's time is the median of its repeats, and plain decoding's that times the median of their own ratios; a
speed-up is total time over total time, with a bootstrap interval over prompts. Every drafter must give plain
decoding's text, or the run ends with an error.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outpace.bench.intervals import of_turns
from outpace.bench.tasks import Question, read_questions
from outpace.errors import OutpaceError, UsageError
from outpace.grammar import JsonSchema
from outpace.result import accepted_by_position

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.result import Result
    from outpace.types import Step

PLAIN, ALL = "none", "all"
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a task file. grammar: what its answer must fit, if anything."""

    task: str
    text: str
    grammar: JsonSchema | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One drafter on one task. speedup: over plain decoding, with its 95 % interval. spread: of a prompt's repeats,
    their range over their median, on average. draft_share and score_share: of decoding time. cold: the first repeat
    alone, before anything was learnt of costs or kept in a store."""

    drafter: str
    task: str
    prompts: int
    tokens: int
    tokens_per_second: float
    speedup: float
    low: float
    high: float
    spread: float
    cold_speedup: float
    tokens_per_step: float
    drafted_per_step: float
    acceptance: float | None
    accepted_by_position: tuple[float, ...]
    draft_share: float
    score_share: float


@dataclass(frozen=True, slots=True)
class Report:
    """model and draft: as they are called. rows: each drafter on each task, and on all together."""

    model: str
    draft: str | None
    temperature: float
    max_tokens: int
    repeats: int
    rows: tuple[Row, ...]

    def record(self) -> dict[str, Any]:
        """Returns the report as JSON has it."""
        return asdict(self)


def read_prompts(files: Sequence[Path], per_task: int) -> list[Prompt]:
    """Returns the first prompts of each task, where the categories writing and roleplay have rows of their own.

    Raises UsageError, as `read_questions` does.
    """
    if per_task < 1:
        raise UsageError(f"prompts of a task must be at least 1, got {per_task}")
    found: list[Prompt] = []
    seen: dict[str, int] = defaultdict(int)
    for question in read_questions(files):
        task = _task(question)
        seen[task] += 1
        if seen[task] <= per_task:
            found.append(Prompt(task, question.text, JsonSchema(question.schema) if question.schema else None))
    return found


def _task(question: Question) -> str:
    own_row = question.category in ("writing", "roleplay")
    return f"{question.task}: {question.category}" if own_row else question.task


@dataclass(slots=True)
class _Runs:
    """The repeats of one drafter on one prompt; their texts are the same, their times are not."""

    seconds: list[float]
    result: Result


def measure(
    model: Model,
    prompts: Sequence[Prompt],
    drafters: Sequence[str],
    *,
    temperature: float = 0.0,
    max_tokens: int = 128,
    repeats: int = 3,
    seed: int = 1,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Report:
    """Returns the report. Raises OutpaceError when a drafter changes a text."""
    names = [PLAIN, *(name for name in drafters if name != PLAIN)]
    runs: list[dict[str, _Runs]] = []
    for number, prompt in enumerate(prompts):
        one: dict[str, _Runs] = {}
        for repeat in range(repeats):
            for name in names if (number + repeat) % 2 else reversed(names):
                result = model.generate(
                    prompt.text,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                    drafter=name,
                    grammar=prompt.grammar,
                )
                one.setdefault(name, _Runs([], result)).seconds.append(result.seconds.decode)
        for name in names:
            if one[name].result.tokens != one[PLAIN].result.tokens:
                raise OutpaceError(f"drafter {name} changed the text of prompt {number} ({prompt.task})")
        runs.append(one)
        progress((number + 1) / len(prompts))
    draft = None if model.draft is None else model.draft.name
    rows = tuple(_rows(prompts, runs, names[1:]))
    return Report(model.target.name, draft, temperature, max_tokens, repeats, rows)


def _rows(prompts: Sequence[Prompt], runs: Sequence[dict[str, _Runs]], names: Sequence[str]) -> Iterator[Row]:
    tasks = [ALL, *dict.fromkeys(prompt.task for prompt in prompts)]
    for name in names:
        for task in tasks:
            chosen = [run for prompt, run in zip(prompts, runs, strict=True) if task in (ALL, prompt.task)]
            yield _row(name, task, chosen)


def _row(name: str, task: str, runs: Sequence[dict[str, _Runs]]) -> Row:
    own = [run[name] for run in runs]
    times = np.array([of_turns(run[PLAIN].seconds, run[name].seconds) for run in runs])
    low, high = _interval(times)
    plain, drafted = times.sum(axis=0)
    cold = sum(run[PLAIN].seconds[0] for run in runs) / sum(one.seconds[0] for one in own)
    steps: list[Step] = [step for one in own for step in one.result.steps]
    tokens = sum(len(one.result.tokens) for one in own)
    proposed = sum(step.drafted for step in steps)
    seconds = [one.result.seconds for one in own]
    decode = sum(s.decode for s in seconds)
    return Row(
        drafter=name,
        task=task,
        prompts=len(runs),
        tokens=tokens,
        tokens_per_second=float(tokens / drafted),
        speedup=float(plain / drafted),
        low=low,
        high=high,
        spread=statistics.mean((max(o.seconds) - min(o.seconds)) / statistics.median(o.seconds) for o in own),
        cold_speedup=cold,
        tokens_per_step=tokens / max(len(steps), 1),
        drafted_per_step=proposed / max(len(steps), 1),
        acceptance=sum(step.accepted for step in steps) / proposed if proposed else None,
        accepted_by_position=accepted_by_position(steps),
        draft_share=sum(s.draft for s in seconds) / decode,
        score_share=sum(s.score for s in seconds) / decode,
    )


def _interval(times: Any) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval over prompts of total plain time over total time."""
    draws = np.random.default_rng(0).integers(0, len(times), (RESAMPLES, len(times)))
    sums = times[draws].sum(axis=1)
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return float(low), float(high)
