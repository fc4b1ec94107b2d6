"""f32 rows as blocks of 32 in GGUF's layouts, which the engine packs: to nearest, without a search for scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError

Rows = NDArray[np.float32]
Blocks = NDArray[np.uint8]

_BLOCK = 32


def quantise(rows: Rows, format: str) -> Blocks:
    """Returns [rows, bytes] the rows in `format`. Raises UsageError for a format that is not written here, or columns
    that are no multiple of 32."""
    if format not in _WRITERS:
        raise UsageError(f"weights of a head can be {', '.join(_WRITERS)}, got {format!r}")
    if rows.shape[1] % _BLOCK:
        raise UsageError(f"rows must have a multiple of {_BLOCK} columns, got {rows.shape[1]}")
    blocks = np.ascontiguousarray(rows, np.float32).reshape(-1, _BLOCK)
    return _WRITERS[format](blocks).reshape(len(rows), -1)


def _q8_0(x: Rows) -> Blocks:
    scale = (np.abs(x).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(x * _inverse(scale)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], axis=1)


def _q4_1(x: Rows) -> Blocks:
    low = x.min(1, keepdims=True).astype(np.float16)
    scale = ((x.max(1, keepdims=True) - low) / 15).astype(np.float16)
    codes = np.rint((x - low.astype(np.float32)) * _inverse(scale)).clip(0, 15).astype(np.uint8)
    packed = codes[:, : _BLOCK // 2] | codes[:, _BLOCK // 2 :] << 4
    return np.concatenate([scale.view(np.uint8), low.view(np.uint8), packed], axis=1)


def _inverse(scale: NDArray[np.float16]) -> Rows:
    wide = scale.astype(np.float32)
    return np.divide(1, wide, out=np.zeros_like(wide), where=wide > 0)


_WRITERS: Mapping[str, Callable[[Rows], Blocks]] = {"Q8_0": _q8_0, "Q4_1": _q4_1}
