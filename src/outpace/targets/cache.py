"""Prefixes of closed requests, kept for later prompts that begin with the same tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
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
    """The prefixes, least recently used first. Committed tokens only: what was drafted and refused never enters.

    Those with the same taps are in the order of their tokens, where whatever shares the most with a prompt stands
    beside it: a look costs the same with ten of them and with a thousand. None begins with all of another.
    """

    def __init__(self) -> None:
        self._by_use: dict[Prefix, None] = {}
        self._by_taps: dict[tuple[int, ...], _Sorted] = {}
        self.tapped = 0
        """Positions of hidden states held."""

    def __len__(self) -> int:
        return len(self._by_use)

    @property
    def tokens(self) -> int:
        """Tokens held, those that prefixes share counted for each."""
        return sum(len(prefix.tokens) for prefix in self._by_use)

    def longest(self, ids: Sequence[int], taps: tuple[int, ...]) -> tuple[Prefix | None, int]:
        """Returns the prefix that shares the most first tokens with `ids`, and how many; it becomes the latest used.

        With `taps`, only one whose hidden states of those layers are there.
        """
        wanted = np.asarray(ids, np.int32)
        key = _key(wanted)
        best: Prefix | None = None
        length = 0
        for has, prefixes in self._by_taps.items():
            if taps and has != taps:
                continue
            for prefix in prefixes.beside(key):
                common = common_length(prefix.tokens, wanted)
                if common > length:
                    best, length = prefix, common
        if best is not None:
            self._by_use[best] = self._by_use.pop(best)
        return best, length

    def add(self, new: Prefix) -> None:
        """Keeps a prefix, unless one that is there covers it; drops those that it covers."""
        key = _key(new.tokens)
        serving = [prefixes for taps, prefixes in self._by_taps.items() if not new.taps or taps == new.taps]
        if not key or any(prefixes.extends(key) for prefixes in serving):
            new.session.close()
            return
        for prefixes in [prefixes for taps, prefixes in self._by_taps.items() if not taps or taps == new.taps]:
            covered = prefixes.beginning(key)
            if covered is not None:
                self._drop(covered)
        self._by_taps.setdefault(new.taps, _Sorted()).insert(key, new)
        self._by_use[new] = None
        self.tapped += len(new.tokens) if new.taps else 0

    def drop_oldest(self) -> None:
        """Gives back the one that was used least recently."""
        self._drop(next(iter(self._by_use)))

    def _drop(self, prefix: Prefix) -> None:
        del self._by_use[prefix]
        self._by_taps[prefix.taps].remove(_key(prefix.tokens))
        self.tapped -= len(prefix.tokens) if prefix.taps else 0
        prefix.session.close()


class _Sorted:
    """Prefixes in the order of their keys, of which none is the beginning of another."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._prefixes: list[Prefix] = []

    def beside(self, key: bytes) -> Iterator[Prefix]:
        """Yields the neighbours of where `key` would stand."""
        at = bisect_left(self._keys, key)
        yield from self._prefixes[max(0, at - 1) : at + 1]

    def extends(self, key: bytes) -> bool:
        """Whether one begins with all of `key`."""
        at = bisect_left(self._keys, key)
        return at < len(self._keys) and self._keys[at].startswith(key)

    def beginning(self, key: bytes) -> Prefix | None:
        """Returns the one that `key` begins with all of: what stands between the two would begin with it as well."""
        at = bisect_right(self._keys, key) - 1
        return self._prefixes[at] if at >= 0 and key.startswith(self._keys[at]) else None

    def insert(self, key: bytes, prefix: Prefix) -> None:
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._prefixes.insert(at, prefix)

    def remove(self, key: bytes) -> None:
        at = bisect_left(self._keys, key)
        del self._keys[at], self._prefixes[at]


def _key(tokens: Ids) -> bytes:
    """Returns bytes that sort as the tokens do."""
    return tokens.astype(">i4").tobytes()


def common_length(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    """Returns how many first elements are equal."""
    n = min(len(a), len(b))
    different = a[:n] != b[:n]
    return int(different.argmax()) if different.any() else n
