"""Weights -> GGUF blocks: the inverse of `dequantise.py`, for the formats that a cut-down draft is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from outpace.native.dequantise import IQ4_CODES

Values = NDArray[np.float32]
Blocks = NDArray[np.uint8]

_REACH = (-120.0, -127.0, -134.0, 113.0)
"""Where a block's weight of the largest size may lie on the scale of the codes; the best of these is kept."""

_NEAREST = np.abs(np.arange(-128, 128, dtype=np.float32)[:, None] - IQ4_CODES).argmin(axis=1).astype(np.uint8)
"""[256] the code nearest to each whole number from -128."""


def quantise(values: Values, format: str) -> NDArray[np.uint8]:
    """Returns the bytes of values [rows, cols] in a format of FORMATS, whose block must divide cols."""
    block, encode = FORMATS[format]
    return encode(np.ascontiguousarray(values, np.float32).reshape(-1, block)).reshape(-1)


def _f32(blocks: Values) -> Blocks:
    return blocks.view(np.uint8)


def _q8_0(blocks: Values) -> Blocks:
    scale = _half(np.abs(blocks).max(axis=1) / 127)
    codes = np.rint(blocks * _inverse(scale)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8).reshape(-1, 2), codes.view(np.uint8)], axis=1)


def _iq4_nl(blocks: Values) -> Blocks:
    """Sixteen uneven codes and one scale a block, which is fitted to the codes by least squares."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    best = np.full(len(blocks), np.inf, np.float32)
    kept_scale = np.zeros(len(blocks), np.float16)
    kept_codes = np.zeros(blocks.shape, np.uint8)
    for reach in _REACH:
        codes = _nearest(blocks, _half(largest / reach))
        values = IQ4_CODES[codes]
        scale = _half((blocks * values).sum(axis=1) / np.maximum((values * values).sum(axis=1), 1))
        codes = _nearest(blocks, scale)
        error = ((blocks - IQ4_CODES[codes] * scale.astype(np.float32)[:, None]) ** 2).sum(axis=1)
        better = error < best
        best = np.where(better, error, best)
        kept_scale = np.where(better, scale, kept_scale)
        kept_codes[better] = codes[better]
    packed = kept_codes[:, :16] | kept_codes[:, 16:] << 4
    return np.concatenate([kept_scale.view(np.uint8).reshape(-1, 2), packed], axis=1)


def _nearest(blocks: Values, scale: NDArray[np.float16]) -> NDArray[np.uint8]:
    whole = np.rint(blocks * _inverse(scale)).clip(-128, 127).astype(np.int16)
    codes: NDArray[np.uint8] = _NEAREST[whole + 128]
    return codes


def _half(scale: Values) -> NDArray[np.float16]:
    return scale.clip(-65504, 65504).astype(np.float16)


def _inverse(scale: NDArray[np.float16]) -> Values:
    wide = scale.astype(np.float32)[:, None]
    inverse: Values = np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)
    return inverse


FORMATS: Mapping[str, tuple[int, Callable[[Values], Blocks]]] = {
    "F32": (1, _f32),
    "Q8_0": (32, _q8_0),
    "IQ4_NL": (32, _iq4_nl),
}
