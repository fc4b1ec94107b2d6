"""Two runs of the same prompts: is a change real?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outpace.bench.contender import PLAIN
from outpace.bench.intervals import Interval, Table, of_totals
from outpace.bench.run import Run
from outpace.bench.summary import ALL, paired, speeds, tasks_of
from outpace.errors import UsageError

FASTER, SLOWER, UNCLEAR = "faster", "slower", "no change shown"

Speeds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Change:
    """b over a. speed: tokens/s. against_plain: the same, each run first divided by its own plain decoding, so that
    a machine that was slower that day does not count; None where a run has none."""

    contender: str
    task: str
    prompts: int
    speed: Interval
    against_plain: Interval | None

    @property
    def verdict(self) -> str:
        """Whether the interval excludes no change; of the ratio to plain where there is one."""
        judged = self.against_plain or self.speed
        if not judged.excludes(1.0):
            return UNCLEAR
        return FASTER if judged.value > 1 else SLOWER

    def record(self) -> dict[str, Any]:
        return {
            "contender": self.contender,
            "task": self.task,
            "prompts": self.prompts,
            "speed": self.speed.record(),
            "against_plain": None if self.against_plain is None else self.against_plain.record(),
            "verdict": self.verdict,
        }


def compare(a: Run, b: Run) -> tuple[Change, ...]:
    """Returns a Change for each contender of both runs, over all their common prompts and by task.

    Paired bootstrap over prompts. Raises UsageError when the runs share no contender or prompt, or asked for answers
    of different length.
    """
    if a.settings.get("max_tokens") != b.settings.get("max_tokens"):
        raise UsageError(
            f"the runs must have the same max_tokens, got {a.settings.get('max_tokens')} and "
            f"{b.settings.get('max_tokens')}: longer answers have other speeds"
        )
    names = [name for name in b.entrants if name in a.entrants]
    changes = [change for name in names for task in tasks_of(b) if (change := _change(a, b, name, task))]
    if not changes:
        raise UsageError("the runs share no contender that answered the same prompt in both")
    return tuple(changes)


def _change(a: Run, b: Run, name: str, task: str) -> Change | None:
    before, after = speeds(a, name, task), speeds(b, name, task)
    texts = {question.name: question.text for question in a.questions}
    common = [q.name for q in b.questions if q.name in before and q.name in after and texts[q.name] == q.text]
    if not common:
        return None
    before, after = {n: before[n] for n in common}, {n: after[n] for n in common}
    plain_before, plain_after = speeds(a, PLAIN, ALL), speeds(b, PLAIN, ALL)
    against = None
    if name != PLAIN and all(n in plain_before and n in plain_after for n in common):
        against = _against_plain(before, after, plain_before, plain_after)
    return Change(name, task, len(common), paired(after, before), against)


def _against_plain(before: Speeds, after: Speeds, plain_before: Speeds, plain_after: Speeds) -> Interval:
    rows = [(*after[n], *plain_after[n], *before[n], *plain_before[n]) for n in before]

    def figure(totals: Table) -> Table:
        after, plain_after, before, plain_before = (totals[..., i] / totals[..., i + 1] for i in (0, 2, 4, 6))
        ratio: Table = after / plain_after / (before / plain_before)
        return ratio

    return of_totals(rows, figure)
