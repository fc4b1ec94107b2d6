"""The weights that a GGUF tensor's bytes stand for: the readable reference of the packed kernels.

Layouts as the GGUF format defines them; each function takes blocks [n, bytes] and returns values [n, block] in f32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.uint8]
Values = NDArray[np.float32]


def _halves(blocks: Blocks, at: int) -> Values:
    """Returns the f16 at byte `at` of each block, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Blocks) -> NDArray[np.uint8]:
    """Returns all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _f32(blocks: Blocks) -> Values:
    return np.ascontiguousarray(blocks).view(np.float32)


def _f16(blocks: Blocks) -> Values:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _bf16(blocks: Blocks) -> Values:
    return (np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Blocks) -> Values:
    return (_nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _halves(blocks, 0)


def _q4_1(blocks: Blocks) -> Values:
    return _nibbles(blocks[:, 4:]).astype(np.float32) * _halves(blocks, 0) + _halves(blocks, 2)


def _q5_0(blocks: Blocks) -> Values:
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    return ((_nibbles(blocks[:, 6:]) | high << 4).astype(np.float32) - 16) * _halves(blocks, 0)


def _q8_0(blocks: Blocks) -> Values:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32) * _halves(blocks, 0)


def _q4_k(blocks: Blocks) -> Values:
    packed = blocks[:, 4:16]
    low, high, both = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, both & 15 | (low >> 6) << 4], axis=1).astype(np.float32)
    minima = np.concatenate([high & 63, both >> 4 | (high >> 6) << 4], axis=1).astype(np.float32)
    # 32 bytes hold two sub-blocks of 32: the low nibbles, then the high ones.
    pairs = blocks[:, 16:].reshape(-1, 4, 32)
    quants = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32).astype(np.float32)
    scale = (_halves(blocks, 0) * scales)[:, :, None]
    minimum = (_halves(blocks, 2) * minima)[:, :, None]
    return (scale * quants - minimum).reshape(-1, 256)


def _q6_k(blocks: Blocks) -> Values:
    low = blocks[:, :128].reshape(-1, 2, 2, 32)  # [half, 32-byte group, byte]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2)  # [half, quarter, 32]
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    quants = (nibbles | (high >> shifts & 3) << 4).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _halves(blocks, 208)
    values: Values = (quants.reshape(-1, 16, 16) * scales[:, :, None]).reshape(-1, 256)
    return values


FORMATS: dict[str, tuple[int, int, Callable[[Blocks], Values]]] = {
    # name: (weights of a block, bytes of a block, decoder)
    "F32": (1, 4, _f32),
    "F16": (1, 2, _f16),
    "BF16": (1, 2, _bf16),
    "Q4_0": (32, 18, _q4_0),
    "Q4_1": (32, 20, _q4_1),
    "Q5_0": (32, 22, _q5_0),
    "Q8_0": (32, 34, _q8_0),
    "Q4_K": (256, 144, _q4_k),
    "Q6_K": (256, 210, _q6_k),
}


def dequantise(data: NDArray[np.uint8], format: str, rows: int, cols: int) -> Values:
    """Returns the values [rows, cols] in f32 of a tensor's bytes, which must be exactly its size."""
    block, nbytes, decode = FORMATS[format]
    values: Values = decode(data.reshape(rows * cols // block, nbytes)).reshape(rows, cols)
    return values
