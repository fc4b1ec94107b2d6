"""Hidden states of committed tokens, in the pieces in which passes returned them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace.types import Array

WAITING = 16
"""Passes whose rows wait until they are picked out together: what that takes leaves the caches with every pass, and
drafts that are seldom asked for should not pay for it in each round."""


class KeptRows:
    """Rows of committed tokens [n, taps, H], oldest first."""

    __slots__ = ("_pieces", "_waiting")

    def __init__(self, pieces: Sequence[Array] = ()) -> None:
        self._pieces = list(pieces)
        self._waiting: list[tuple[Array, tuple[int, ...]]] = []

    def __bool__(self) -> bool:
        return bool(self._pieces or self._waiting)

    def add(self, scored: Array, path: tuple[int, ...]) -> None:
        """Keeps a pass's rows of the last committed token (row 0) and of an accepted path (node i is row i + 1)."""
        self._waiting.append((scored, path))
        if len(self._waiting) >= WAITING:
            self._pick()

    def pieces(self) -> list[tuple[Array, tuple[int, ...] | None]]:
        """Returns the rows as they came: what a pass scored and the path as `add` had them; None = all its rows."""
        return [*((piece, None) for piece in self._pieces), *self._waiting]

    def joined(self) -> Array:
        """Returns all rows, which are one piece from now on. There must be one."""
        self._pick()
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]

    def _pick(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._pieces += [scored[[0, *(node + 1 for node in path)]] for scored, path in waiting]
