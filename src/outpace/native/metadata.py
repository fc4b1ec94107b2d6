"""The values of a GGUF file's keys."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile
from outpace.vocabulary import Kind

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

    def __repr__(self) -> str:
        return f"an array of {self._count}"

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


def gguf_tokens(metadata: Mapping[str, Value]) -> tuple[StringArray, NDArray[np.int8]] | None:
    """Returns the tokens of a GGUF file and the Kind of each, NORMAL where no key says; None without tokens.

    Raises BadModelFile.
    """
    tokens, kinds = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if tokens is None:
        return None
    if not isinstance(tokens, StringArray):
        raise BadModelFile(f"tokenizer.ggml.tokens must be an array of strings, got {brief(tokens)}")
    if kinds is None:
        return tokens, np.full(len(tokens), Kind.NORMAL, np.int8)
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),) or kinds.dtype.kind not in "iu":
        raise BadModelFile(
            f"tokenizer.ggml.token_type must be {len(tokens)} integers, one a token, got {brief(kinds)}"
        )
    if kinds.size and (kinds.min() < Kind.NORMAL or kinds.max() > Kind.BYTE):
        raise BadModelFile(f"tokenizer.ggml.token_type must be in [1, 6], got {kinds.min()} to {kinds.max()}")
    return tokens, kinds.astype(np.int8)


def quoted(name: str) -> str:
    """Returns a name from a file as it may stand in a message: escaped, and not too long."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def brief(value: object) -> str:
    """Returns a value as a message may show it."""
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)}"
    return "nothing" if value is None else repr(value)[:60]
