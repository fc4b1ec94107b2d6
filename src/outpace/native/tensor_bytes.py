"""Where the tensors of a model lie: in which file, from which byte, in how many pieces.

A file may hold as one what the decoder needs as several (Phi-3's q, k and v), or as many what it needs as one (the
experts of a mixture): rows are cut and strung together here, without copying.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile
from outpace.native.metadata import quoted
from outpace.native.rawfile import RawFile
from outpace.native.weights import TensorInfo

_Piece = tuple[RawFile, int, int]
"""A file, the first byte, and how many rows lie there."""


class TensorBytes:
    """The tensors of an opened model. `tensors` describes them by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, TensorInfo] = {}
        self._pieces: dict[str, list[_Piece]] = {}

    def add(self, info: TensorInfo, raw: RawFile, offset: int) -> None:
        """Adds a tensor that lies in one piece. Raises BadModelFile when there is one of that name."""
        if info.name in self.tensors:
            raise BadModelFile(f"{raw.path}: the tensor {quoted(info.name)} is in another file too")
        self.tensors[info.name] = info
        self._pieces[info.name] = [(raw, offset, info.rows)]

    def drop(self, name: str) -> None:
        """Forgets a tensor."""
        del self.tensors[name], self._pieces[name]

    def cut(self, name: str, parts: Sequence[tuple[str, int]]) -> None:
        """Replaces a tensor by (name, rows) of its rows, in order. Raises BadModelFile unless they add up."""
        info, (raw, offset, rows) = self.tensors[name], self._pieces[name][0]
        if sum(count for _, count in parts) != rows:
            needed = " + ".join(str(count) for _, count in parts)
            raise BadModelFile(f"the tensor {quoted(name)} has {rows} rows, the model needs {needed}")
        self.drop(name)
        row_bytes = info.nbytes // rows
        for part, count in parts:
            self.add(replace(info, name=part, rows=count, nbytes=count * row_bytes), raw, offset)
            offset += count * row_bytes

    def join(self, name: str, parts: Sequence[str]) -> None:
        """Replaces tensors of one shape and format by one with all their rows, in order. Raises BadModelFile."""
        first = self.tensors[parts[0]]
        for part in parts:
            info = self.tensors[part]
            if (info.format, info.rows, info.cols) != (first.format, first.rows, first.cols):
                raise BadModelFile(f"the tensors {quoted(parts[0])} and {quoted(part)} differ in format or shape")
        pieces = [piece for part in parts for piece in self._pieces[part]]
        for part in parts:
            self.drop(part)
        count = len(parts)
        self.tensors[name] = replace(first, name=name, rows=first.rows * count, nbytes=first.nbytes * count)
        self._pieces[name] = pieces

    def read(self, name: str, first_row: int, rows: int) -> NDArray[np.uint8]:
        """Returns the bytes of rows [first_row, first_row + rows) of a tensor, read from its files now."""
        info = self.tensors[name]
        if first_row < 0 or rows < 0 or first_row + rows > info.rows:
            raise BadModelFile(f"{name} has {info.rows} rows, asked for {first_row} to {first_row + rows}")
        row_bytes, end, at = info.nbytes // info.rows, first_row + rows, 0
        found: list[NDArray[np.uint8]] = []
        for raw, offset, count in self._pieces[name]:
            begin, stop = max(first_row - at, 0), min(end - at, count)
            if begin < stop or not rows:
                found.append(raw.read(offset + begin * row_bytes, max(0, stop - begin) * row_bytes))
            at += count
        return found[0] if len(found) == 1 else np.concatenate(found)

    def files(self) -> list[RawFile]:
        """Returns the files that hold tensors, each once."""
        return list({id(raw): raw for pieces in self._pieces.values() for raw, _, _ in pieces}.values())
