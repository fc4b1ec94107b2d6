"""What an acceptance line is, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure of a line. `passed` None: not run, and `figure` says why."""

    what: str
    figure: str
    bound: str
    passed: bool | None
    interval: str = ""


class NotRun(Exception):
    """What a line needs is not here; the text says what and how to get it."""


Line = tuple[str, str, Callable[[], Iterator[Outcome]]]
