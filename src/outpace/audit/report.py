"""What an audit tried, what it found, and what it did not try: one form for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from time import perf_counter as clock
from typing import Any, TypeAlias

from outpace.errors import MissingExtra, UsageError

HOLDS, FAILS, NOT_COVERED = "holds", "fails", "not covered"


class NotCovered(Exception):
    """A check cannot be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. evidence: in a line, what was compared and how it came out."""

    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Task:
    """A check that is still to be made. group: the claim that it is part of; name: the case."""

    group: str
    name: str
    run: Callable[[], Finding]


@dataclass(frozen=True, slots=True)
class Control:
    """A build with one fault, kept to show that a check sees it. killer: the check that must.

    run: finds whether the killer, applied to that build, fails (`holds` False: the mutant is dead).
    """

    name: str
    fault: str
    killer: str
    run: Callable[[], Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that was made, or was not: verdict is HOLDS, FAILS or NOT_COVERED."""

    group: str
    name: str
    verdict: str
    evidence: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ControlCheck:
    """A mutant and whether its killer saw it."""

    name: str
    fault: str
    killer: str
    killed: bool
    evidence: str
    seconds: float = 0.0


Progress: TypeAlias = Callable[[str], None]
"""Is told what comes next."""


class Minutes:
    """The time an audit may take; None is without end. Raises UsageError unless it is positive."""

    def __init__(self, minutes: float | None = None) -> None:
        if minutes is not None and not minutes > 0:
            raise UsageError(f"minutes must be above 0, got {minutes}")
        self.start = clock()
        self._end = None if minutes is None else self.start + 60 * minutes
        self._longest: dict[str, float] = defaultdict(float)

    def fits(self, group: str) -> bool:
        """Returns whether another task of the group fits, if it takes as long as the longest so far."""
        return self._end is None or clock() + self._longest[group] < self._end

    def took(self, group: str, seconds: float) -> None:
        """Learns how long a task took."""
        self._longest[group] = max(self._longest[group], seconds)

    @property
    def spent(self) -> float:
        """Seconds since the audit began."""
        return clock() - self.start


def perform(tasks: Sequence[Task], minutes: Minutes, progress: Progress) -> tuple[Check, ...]:
    """Returns one Check a task, in their order; what does not fit into the time is not covered.

    Groups take turns, so that a short audit touches each of them. A task that raises fails, and the others go on.
    """
    found: dict[int, Check] = {}
    for place, task in _taking_turns(tasks):
        if not minutes.fits(task.group):
            found[place] = Check(task.group, task.name, NOT_COVERED, "time ran out")
            continue
        progress(f"{task.group}: {task.name}")
        found[place] = _made(task)
        minutes.took(task.group, found[place].seconds)
    return tuple(found[place] for place in range(len(tasks)))


def _taking_turns(tasks: Sequence[Task]) -> Iterator[tuple[int, Task]]:
    groups: dict[str, list[tuple[int, Task]]] = defaultdict(list)
    for place, task in enumerate(tasks):
        groups[task.group].append((place, task))
    for turn in zip_longest(*groups.values()):
        yield from (each for each in turn if each is not None)


def _made(task: Task) -> Check:
    start = clock()
    try:
        finding = task.run()
        verdict, evidence = HOLDS if finding.holds else FAILS, finding.evidence
    except (NotCovered, MissingExtra) as reason:
        verdict, evidence = NOT_COVERED, str(reason)
    except Exception as error:  # one broken check must not hide the others
        verdict, evidence = FAILS, f"{type(error).__name__}: {error}"
    return Check(task.group, task.name, verdict, evidence, clock() - start)


def try_controls(controls: Iterable[Control], progress: Progress) -> tuple[ControlCheck, ...]:
    """Returns one ControlCheck a mutant. A killer that raises has not seen the fault: the mutant survives."""
    found = []
    for control in controls:
        progress(f"mutant {control.name}")
        check = _made(Task(control.killer, control.name, control.run))
        killed = check.verdict == FAILS and not _raised(check.evidence)
        found.append(ControlCheck(control.name, control.fault, control.killer, killed, check.evidence, check.seconds))
    return tuple(found)


def _raised(evidence: str) -> bool:
    return evidence.split(":")[0].endswith(("Error", "Exception"))


@dataclass(frozen=True, slots=True)
class Report:
    """One audit. untested: what it cannot see by its nature, beside the checks that were not covered.

    subject: what was audited. facts: of the machine, the model and the run, name to value.
    """

    title: str
    subject: str
    checks: tuple[Check, ...]
    controls: tuple[ControlCheck, ...] = ()
    untested: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def faults(self) -> tuple[str, ...]:
        """What does not hold, a line each."""
        lines = [f"{c.group}, {c.name}: {c.evidence}" for c in self.checks if c.verdict == FAILS]
        lines += [f"mutant {c.name!r} survives {c.killer}: {c.evidence}" for c in self.controls if not c.killed]
        if not any(c.verdict != NOT_COVERED for c in self.checks):
            lines.append("nothing was checked: every check was left out")
        return tuple(lines)

    @property
    def holds(self) -> bool:
        """Whether all that ran holds, and something ran."""
        return not self.faults

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What was left out, with the reason, a line each; then what this audit cannot see."""
        left = defaultdict(list)
        for check in self.checks:
            if check.verdict == NOT_COVERED:
                left[check.group, check.evidence].append(check.name)
        lines = [f"{group} ({'; '.join(names)}): {why}" for (group, why), names in left.items()]
        return (*lines, *self.untested)

    def count(self, verdict: str) -> int:
        """Returns how many checks have this verdict."""
        return sum(check.verdict == verdict for check in self.checks)

    def verdict(self) -> str:
        """Returns one line: what holds, what does not, what was left out."""
        killed = sum(control.killed for control in self.controls)
        parts = [f"{self.count(HOLDS)} of {self.count(HOLDS) + self.count(FAILS)} checks hold"]
        if self.controls:
            parts.append(f"{killed} of {len(self.controls)} mutants seen")
        if self.count(NOT_COVERED):
            parts.append(f"{self.count(NOT_COVERED)} checks not covered")
        start = "all that ran holds" if self.holds else f"{len(self.faults)} faults"
        return f"{start}: {', '.join(parts)}, {self.seconds:.1f} s"

    def record(self) -> dict[str, Any]:
        """Returns the report as JSON has it."""
        return {
            "audit": self.title,
            "subject": self.subject,
            "holds": self.holds,
            "faults": list(self.faults),
            "not_covered": list(self.not_covered),
            "seconds": self.seconds,
            "facts": dict(self.facts),
            "checks": [
                {
                    "group": c.group,
                    "name": c.name,
                    "verdict": c.verdict,
                    "evidence": c.evidence,
                    "seconds": c.seconds,
                }
                for c in self.checks
            ],
            "mutants": [
                {"name": c.name, "fault": c.fault, "killer": c.killer, "killed": c.killed, "evidence": c.evidence}
                for c in self.controls
            ],
        }

    def timed(self, minutes: Minutes) -> Report:
        """Returns the report with the seconds spent."""
        return replace(self, seconds=minutes.spent)
