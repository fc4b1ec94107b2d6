"""What a run says: speeds and latencies by contender and task, derived from its readings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outpace.bench.contender import PLAIN, Reading
from outpace.bench.intervals import Interval, of_turns, percentile, rate, rate_ratio
from outpace.bench.run import Run
from outpace.errors import UsageError

ALL = "all"
SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Line:
    """One contender on one task (or ALL). Seconds and tokens are of decoding after the first arrival, warm.

    tokens_per_s: medians over repeats for each prompt, totals over prompts. over_plain: medians of the repeats' own
    ratios, weighed by the prompts' times. first_seconds: median time to the first token, the prompt in no cache.
    token_seconds: at SHARES, each token taking its arrival's gap over the tokens that came with it. gap_seconds: at
    the same shares, the gaps between arrivals. None: not known.
    """

    contender: str
    task: str
    prompts: int
    tokens_per_s: Interval
    over_plain: Interval | None
    first_seconds: float
    token_seconds: tuple[float, ...]
    gap_seconds: tuple[float, ...]
    tokens_per_step: float | None
    acceptance_rate: float | None

    def record(self) -> dict[str, Any]:
        return {
            "contender": self.contender,
            "task": self.task,
            "prompts": self.prompts,
            "tokens_per_s": self.tokens_per_s.record(),
            "over_plain": None if self.over_plain is None else self.over_plain.record(),
            "first_seconds": self.first_seconds,
            "token_seconds": dict(zip(map(_name, SHARES), self.token_seconds, strict=True)),
            "gap_seconds": dict(zip(map(_name, SHARES), self.gap_seconds, strict=True)),
            "tokens_per_step": self.tokens_per_step,
            "acceptance_rate": self.acceptance_rate,
        }


def _name(share: float) -> str:
    return f"p{100 * share:.0f}"


def tasks_of(run: Run) -> tuple[str, ...]:
    """Returns ALL, then the tasks in the order of their prompts."""
    return (ALL, *dict.fromkeys(question.task for question in run.questions))


def summarise(run: Run) -> tuple[Line, ...]:
    """Returns a line for every contender and task with an answer that has a second token."""
    return tuple(
        line for name in run.entrants for task in tasks_of(run) if (line := _line(run, name, task)) is not None
    )


def typical(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """Returns (tokens, seconds) of decoding at the repeat of median speed; None where nothing was decoded."""
    decoded = [one for one in readings if one.later_tokens and one.later_seconds > 0]
    if not decoded:
        return None
    one = sorted(decoded, key=lambda r: r.later_seconds / r.later_tokens)[(len(decoded) - 1) // 2]
    return float(one.later_tokens), one.later_seconds


def speeds(run: Run, contender: str, task: str) -> dict[str, tuple[float, float]]:
    """Returns prompt -> (tokens, seconds) for the prompts of a task that the contender answered."""
    found = {}
    for question in run.questions:
        readings = run.readings.get(contender, {}).get(question.name, [])
        if task in (ALL, question.task) and (speed := typical(readings)) is not None:
            found[question.name] = speed
    return found


def paired(a: dict[str, tuple[float, float]], b: dict[str, tuple[float, float]]) -> Interval:
    """Returns how many times as fast a is as b, over the prompts of both.

    Raises UsageError when they share no prompt.
    """
    rows = [(*a[name], *b[name]) for name in a if name in b]
    if not rows:
        raise UsageError("there is no prompt that both answered")
    return rate_ratio(rows)


def _line(run: Run, name: str, task: str) -> Line | None:
    measured = speeds(run, name, task)
    if not measured:
        return None
    readings = [one for question in measured for one in run.readings[name][question]]
    passes = None if any(one.passes is None for one in readings) else sum(one.passes or 0 for one in readings)
    drafted = sum(one.drafted for one in readings)
    gaps = [gap for one in readings for gap in _gaps(one)]
    counts, seconds = [count for count, _ in gaps], [gap for _, gap in gaps]
    each = [gap / count for count, gap in gaps]
    return Line(
        name,
        task,
        len(measured),
        rate(list(measured.values())),
        None if name == PLAIN else _over_plain(run, name, measured),
        statistics.median(one.first_seconds for one in readings),
        tuple(percentile(each, counts, share) for share in SHARES),
        tuple(percentile(seconds, [1] * len(seconds), share) for share in SHARES),
        sum(len(one.tokens) for one in readings) / passes if passes else None,
        sum(one.accepted for one in readings) / drafted if drafted else None,
    )


def _over_plain(run: Run, name: str, measured: Mapping[str, tuple[float, float]]) -> Interval | None:
    """Returns how many times as fast as plain decoding the prompts of `measured` were; None where none has both."""
    rows = []
    for question, (tokens, _) in measured.items():
        turns = zip(run.readings.get(PLAIN, {}).get(question, []), run.readings[name][question], strict=False)
        decoded = [(p, o) for p, o in turns if typical([p]) and typical([o])]
        if decoded:
            arms = zip(*decoded, strict=True)
            plain, ours = of_turns(*([one.later_seconds / one.later_tokens for one in arm] for arm in arms))
            rows.append((tokens, tokens * ours, tokens, tokens * plain))
    return rate_ratio(rows) if rows else None


def _gaps(reading: Reading) -> Iterator[tuple[int, float]]:
    """Yields (tokens, seconds waited) of each arrival after the first."""
    before = reading.arrivals[0][1]
    for count, at in reading.arrivals[1:]:
        yield count, at - before
        before = at
