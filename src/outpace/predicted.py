"""How much of a predicted answer came true."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 4096
"""Predicted tokens that are compared at a time; bounds the memory for a prediction of any length."""


def appeared(predicted: Sequence[int], emitted: Sequence[int], block: int = BLOCK) -> int:
    """Returns how many predicted tokens stand in a text in the same order: their longest common subsequence.

    The table's row is one integer, a bit a predicted token that is 0 where the row grows: with m the places of the
    next token, row' = (row + (row & m)) | (row & ~m) (Hyyro 2004). What a sum carries out of a block enters the next.
    """
    found = 0
    carries = bytearray(len(emitted))
    for start in range(0, len(predicted), block):
        part = predicted[start : start + block]
        places: dict[int, int] = {}
        for i, token in enumerate(part):
            places[token] = places.get(token, 0) | 1 << i
        row = full = (1 << len(part)) - 1
        for i, token in enumerate(emitted):
            here = places.get(token, 0)
            total = row + (row & here) + carries[i]
            carries[i] = total >> len(part)
            row = (total | (row & ~here)) & full
        found += len(part) - row.bit_count()
    return found
