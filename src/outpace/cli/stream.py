"""The text of a generation, written to stdout as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from outpace.cli.console import colours, visible
from outpace.result import ACCEPTED, BONUS, CORRECTION, PLAIN, Chunk

_RESET = "\x1b[0m"
_COLOUR = {ACCEPTED: "\x1b[32m", CORRECTION: "\x1b[33m", BONUS: "\x1b[36m", PLAIN: ""}
_MARKERS = {ACCEPTED: ("{", "}"), CORRECTION: ("<", ">"), BONUS: ("(", ")"), PLAIN: ("", "")}


class Writer(Protocol):
    """Writes the pieces of a text."""

    def chunk(self, chunk: Chunk) -> None: ...

    def end(self) -> None:
        """Ends the line, if there is one."""
        ...


class TextWriter:
    """The text and nothing else; on a terminal its control characters are made visible."""

    def __init__(self) -> None:
        self._clean = visible if sys.stdout.isatty() else str
        self._last = "\n"

    def chunk(self, chunk: Chunk) -> None:
        self.write(chunk.text)

    def end(self) -> None:
        if self._last != "\n":
            self.write("\n")

    def write(self, text: str) -> None:
        """Writes text that is shown at once."""
        if text:
            sys.stdout.write(self._clean(text))
            sys.stdout.flush()
            self._last = text[-1]


class DraftWriter(TextWriter):
    """The text with each token's origin: in colour on a terminal, else between {accepted} <correction> (bonus)."""

    def __init__(self) -> None:
        super().__init__()
        self._coloured = colours(sys.stdout.isatty())

    def chunk(self, chunk: Chunk) -> None:
        for origin, text in _runs(chunk.pieces, chunk.origins):
            self._write_run(origin, text)

    def _write_run(self, origin: str, text: str) -> None:
        before, after = (_COLOUR[origin], _RESET) if self._coloured else _MARKERS[origin]
        # In one write, so that an interruption leaves no colour behind.
        sys.stdout.write(before + self._clean(text) + (after if before else ""))
        sys.stdout.flush()
        self._last = text[-1] if self._coloured or not after else after

    def legend(self) -> str:
        """Returns what the colours or markers mean, in their own dress."""
        named = [(ACCEPTED, "accepted"), (CORRECTION, "correction"), (BONUS, "bonus")]
        if self._coloured:
            return "  ".join(_COLOUR[origin] + name + _RESET for origin, name in named)
        return "  ".join(name.join(_MARKERS[origin]) for origin, name in named)


class Silent:
    """Writes nothing: the text comes later, or in a record."""

    def chunk(self, chunk: Chunk) -> None:
        pass

    def end(self) -> None:
        pass


def _runs(pieces: Sequence[str], origins: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (origin, text) of neighbours with one origin; tokens that add no text yet are left out."""
    shown = [(origin, piece) for origin, piece in zip(origins, pieces, strict=True) if piece]
    for origin, group in groupby(shown, key=lambda pair: pair[0]):
        yield origin, "".join(piece for _, piece in group)
