"""The values of a GGUF file's keys."""

from __future__ import annotations

import struct
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile

_LENGTH = struct.Struct("<Q").unpack_from


class StringArray:
    """An array of strings, packed as in the file."""

    def __init__(self, label: str, packed: bytes, count: int) -> None:
        self.label = label
        self.packed = packed
        self._count = count
        self._strings: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    def strings(self) -> list[str]:
        """Returns the strings, decoded once and shared: do not change the list. Raises BadModelFile on bad UTF-8."""
        if self._strings is None:
            packed, at, out = self.packed, 0, []
            try:
                for _ in range(self._count):
                    start = at + 8
                    at = start + _LENGTH(packed, at)[0]
                    out.append(packed[start:at].decode())
            except UnicodeDecodeError:
                raise BadModelFile(f"{self.label}[{len(out)}] is not UTF-8") from None
            self._strings = out
        return self._strings

    def forget(self) -> None:
        """Gives back the decoded strings; the packed ones stay."""
        self._strings = None


Value: TypeAlias = "bool | int | float | str | NDArray[np.generic] | StringArray | list[Value]"


def quoted(name: str) -> str:
    """Returns a name from a file as it may stand in a message: escaped, and not too long."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
