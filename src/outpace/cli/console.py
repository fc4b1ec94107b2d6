"""Where words go: the text to stdout, everything about it to stderr, colour only where a person is looking."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

PIPED_WIDTH = 100
"""Columns of a table that is written into a file or a pipe, where no terminal says how many there are."""


def stdout() -> Console:
    """Returns a console on the standard output of now."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Returns a console on the standard error of now."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit here, with a code of its own
            raise BrokenPipeError

    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Quiet(file=stream, width=width, highlight=False, markup=False, emoji=False)


def note(message: str) -> None:
    """Writes one line about what is going on to stderr."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def fail(message: str) -> None:
    """Writes an error to stderr: one line, whatever the message was."""
    note("outpace: error: " + " ".join(message.split()))


_CONTROL = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_CONTROL |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """Returns the text with control characters made visible: what a model says must not steer the terminal."""
    return text.translate(_CONTROL)


def colours(stream_is_terminal: bool) -> bool:
    """Returns whether colour may be written: a terminal, and no NO_COLOR (https://no-color.org) or dumb one."""
    return stream_is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(record: object) -> None:
    """Writes one JSON object, and nothing else, to stdout."""
    import json

    sys.stdout.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def progress(what: str) -> Callable[[float], None]:
    """Returns what shows the fraction done, on a terminal."""
    if not sys.stderr.isatty():
        return lambda fraction: None

    def show(fraction: float) -> None:
        sys.stderr.write("\r\x1b[K" if fraction >= 1 else f"\r{what} {fraction:4.0%}")
        sys.stderr.flush()

    return show
