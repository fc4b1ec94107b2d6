"""Prefixes of closed requests, kept for later prompts that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace import _native

Ids = NDArray[np.int32]
Hidden = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Committed tokens in a cache of their own, with the hidden states [length, taps, H] that were tapped."""

    tokens: Ids
    session: _native.Session
    taps: tuple[int, ...] = ()
    hidden: Hidden | None = None


class PrefixStore:
    """The prefixes, least recently used first. Committed tokens only: what was drafted and refused never enters."""

    def __init__(self) -> None:
        self._prefixes: list[Prefix] = []

    def __len__(self) -> int:
        return len(self._prefixes)

    @property
    def tokens(self) -> int:
        """Tokens held, those that prefixes share counted for each."""
        return sum(len(prefix.tokens) for prefix in self._prefixes)

    def longest(self, ids: Sequence[int], taps: tuple[int, ...]) -> tuple[Prefix | None, int]:
        """Returns the prefix that shares the most first tokens with `ids`, and how many; it becomes the latest used.

        With `taps`, only one whose hidden states of those layers are there.
        """
        wanted = np.asarray(ids, np.int64)
        best: Prefix | None = None
        length = 0
        for prefix in self._prefixes:
            if taps and prefix.taps != taps:
                continue
            common = common_length(prefix.tokens, wanted)
            if common > length:
                best, length = prefix, common
        if best is not None:
            self._prefixes.remove(best)
            self._prefixes.append(best)
        return best, length

    def add(self, new: Prefix) -> None:
        """Keeps a prefix, unless one that is there covers it; drops those that it covers."""
        if len(new.tokens) == 0 or any(_covers(old, new) for old in self._prefixes):
            new.session.close()
            return
        for old in [old for old in self._prefixes if _covers(new, old)]:
            self._drop(old)
        self._prefixes.append(new)

    def drop_oldest(self) -> None:
        """Gives back the one that was used least recently."""
        self._drop(self._prefixes[0])

    def _drop(self, prefix: Prefix) -> None:
        self._prefixes.remove(prefix)
        prefix.session.close()


def common_length(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    """Returns how many first elements are equal."""
    n = min(len(a), len(b))
    different = a[:n] != b[:n]
    return int(different.argmax()) if different.any() else n


def _covers(a: Prefix, b: Prefix) -> bool:
    """Whether whatever can be forked from `b` can be forked from `a`."""
    return (not b.taps or a.taps == b.taps) and common_length(a.tokens, b.tokens) == len(b.tokens)
