"""The progress of a download, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outpace.cli import console

Progress = Callable[[int, int], None]


@contextmanager
def pulling(name: str) -> Iterator[Progress]:
    """Gives what shows (bytes done, bytes in all): a bar on a terminal, elsewhere one line. Nothing before a call."""
    if not sys.stderr.isatty():
        yield _OneLine(name)
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console.stderr(),
        transient=True,
    )
    task = bar.add_task(f"pulling {name}", total=None)
    started = False

    def show(done: int, total: int) -> None:
        nonlocal started
        if not started:
            bar.start()
            started = True
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        if started:
            bar.stop()


class _OneLine:
    """Says once that something is being pulled."""

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def __call__(self, done: int, total: int) -> None:
        if self._name is not None:
            console.note(f"pulling {self._name} ({total / 1e6:.0f} MB)")
            self._name = None
