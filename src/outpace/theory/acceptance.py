"""How often a drafter is assumed to agree with its target, by kind and task, until somebody measures it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import mean
from typing import Any

from outpace.errors import UsageError
from outpace.theory import checks

KINDS = ("draft", "eagle", "ngram")
"""Drafters: a smaller model, a head on the target's hidden states (EAGLE and its kin), copies of what was there."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An acceptance rate in [0, 1], the same at every position of a draft, and where it is from."""

    value: float
    source: str

    def __post_init__(self) -> None:
        checks.fraction("acceptance", self.value)


def assumed(kind: str, tasks: Sequence[str], size_ratio: float | None = None) -> Acceptance:
    """Returns the mean over `tasks` of what acceptance.toml has for this kind of drafter, with the sources.

    size_ratio: parameters of the target over those of the draft; it moves the figure of a draft model by its size.
    A task without a figure takes the kind's "all", and the source says so. Raises UsageError for an unknown task.
    """
    if not tasks:
        raise UsageError(f"at least one task is needed: {', '.join(known_tasks())}")
    table, found = _table()[kind], []
    for task in tasks:
        if task not in known_tasks():
            raise UsageError(f"no task '{task}': known are {', '.join(known_tasks())}")
        figure = table.get(task, table["all"])
        missing = "" if task in table else f" (no figure for {task})"
        found.append(Acceptance(figure.value, figure.source + missing))
    value, sources = mean(one.value for one in found), [one.source for one in found]
    if size_ratio is not None:
        size = _document()["size"]
        tenths = math.log10(checks.positive("size_ratio", size_ratio, "times") / size["ratio"])
        value = min(1.0, max(0.0, value - size["lost_per_tenth"] * tenths))
        sources.append(size["source"])
    return Acceptance(value, "; ".join(dict.fromkeys(sources)))


@cache
def known_tasks() -> tuple[str, ...]:
    """Returns the tasks that any drafter has a figure for, "all" first."""
    return tuple(dict.fromkeys(task for kind in KINDS for task in _table()[kind]))


@cache
def _table() -> Mapping[str, Mapping[str, Acceptance]]:
    return {
        kind: {task: Acceptance(entry["acceptance"], entry["source"]) for task, entry in _document()[kind].items()}
        for kind in KINDS
    }


@cache
def _document() -> Mapping[str, Any]:
    return tomllib.loads(files("outpace.theory").joinpath("acceptance.toml").read_text("utf-8"))
