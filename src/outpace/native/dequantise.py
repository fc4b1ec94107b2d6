"""The weights that a GGUF tensor's bytes stand for: the readable reference of the packed kernels.

Layouts as the GGUF format defines them; each function takes blocks [n, bytes] and returns values [n, block] in f32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.uint8]
Values = NDArray[np.float32]


IQ4_CODES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


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


def _q5_1(blocks: Blocks) -> Values:
    high = np.unpackbits(blocks[:, 4:8], axis=1, bitorder="little")
    return (_nibbles(blocks[:, 8:]) | high << 4).astype(np.float32) * _halves(blocks, 0) + _halves(blocks, 2)


def _iq4_nl(blocks: Blocks) -> Values:
    return IQ4_CODES[_nibbles(blocks[:, 2:])] * _halves(blocks, 0)


def _q8_0(blocks: Blocks) -> Values:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32) * _halves(blocks, 0)


def _q2_k(blocks: Blocks) -> Values:
    quants = _twos(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    scale = (_halves(blocks, 80) * (blocks[:, :16] & 15))[:, :, None]
    minimum = (_halves(blocks, 82) * (blocks[:, :16] >> 4))[:, :, None]
    return _flat(scale * quants - minimum)


def _q3_k(blocks: Blocks) -> Values:
    quants = _twos(blocks[:, 32:96]) | _bit_of_each_32(blocks[:, :32]) << np.uint8(2)
    low = np.concatenate([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], axis=1)
    high = np.concatenate([blocks[:, 104:108] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = ((low | high << 4).astype(np.float32) - 32) * _halves(blocks, 108)
    return _flat((quants.reshape(-1, 16, 16).astype(np.float32) - 4) * scales[:, :, None])


def _twos(packed: Blocks) -> NDArray[np.uint8]:
    """Returns codes [n, 256]: each 32 bytes hold the low two bits of four times 32 weights."""
    halves = packed.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return (halves & np.uint8(3)).reshape(-1, 256)


def _bit_of_each_32(packed: Blocks) -> NDArray[np.uint8]:
    """Returns bits [n, 256]: bit j of byte i belongs to weight 32 j + i."""
    shifted = packed[:, None, :] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    return (shifted & np.uint8(1)).reshape(-1, 256)


def _flat(values: Values) -> Values:
    return values.reshape(-1, 256)


def _q4_k(blocks: Blocks) -> Values:
    return _with_minima(blocks, _nibble_pairs(blocks[:, 16:]))


def _q5_k(blocks: Blocks) -> Values:
    return _with_minima(blocks, _nibble_pairs(blocks[:, 48:]) | _bit_of_each_32(blocks[:, 16:48]) << np.uint8(4))


def _nibble_pairs(packed: Blocks) -> NDArray[np.uint8]:
    """Returns codes [n, 256]: 32 bytes hold two sub-blocks of 32, the low nibbles, then the high ones."""
    pairs = packed.reshape(-1, 4, 32)
    return np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 256)


def _with_minima(blocks: Blocks, quants: NDArray[np.uint8]) -> Values:
    """Returns scale * code - minimum, with the 6-bit scales and minima of Q4_K and Q5_K."""
    packed = blocks[:, 4:16]
    low, high, both = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, both & 15 | (low >> 6) << 4], axis=1).astype(np.float32)
    minima = np.concatenate([high & 63, both >> 4 | (high >> 6) << 4], axis=1).astype(np.float32)
    scale = (_halves(blocks, 0) * scales)[:, :, None]
    minimum = (_halves(blocks, 2) * minima)[:, :, None]
    return _flat(scale * quants.reshape(-1, 8, 32).astype(np.float32) - minimum)


def _q6_k(blocks: Blocks) -> Values:
    low = blocks[:, :128].reshape(-1, 2, 2, 32)  # [half, 32-byte group, byte]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2)  # [half, quarter, 32]
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    quants = (nibbles | (high >> shifts & 3) << 4).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _halves(blocks, 208)
    return _flat(quants.reshape(-1, 16, 16) * scales[:, :, None])


def _iq4_xs(blocks: Blocks) -> Values:
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    high = np.ascontiguousarray(blocks[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = ((low | high.astype(np.uint8) << 4).astype(np.float32) - 32) * _halves(blocks, 0)
    return _flat(IQ4_CODES[_nibbles(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 8, 32) * scales[:, :, None])


FORMATS: dict[str, tuple[int, int, Callable[[Blocks], Values]]] = {
    # name: (weights of a block, bytes of a block, decoder)
    "F32": (1, 4, _f32),
    "F16": (1, 2, _f16),
    "BF16": (1, 2, _bf16),
    "Q4_0": (32, 18, _q4_0),
    "Q4_1": (32, 20, _q4_1),
    "Q5_0": (32, 22, _q5_0),
    "Q5_1": (32, 24, _q5_1),
    "Q8_0": (32, 34, _q8_0),
    "Q2_K": (256, 84, _q2_k),
    "Q3_K": (256, 110, _q3_k),
    "Q4_K": (256, 144, _q4_k),
    "Q5_K": (256, 176, _q5_k),
    "Q6_K": (256, 210, _q6_k),
    "IQ4_NL": (32, 18, _iq4_nl),
    "IQ4_XS": (256, 136, _iq4_xs),
}


def dequantise(data: NDArray[np.uint8], format: str, rows: int, cols: int) -> Values:
    """Returns the values [rows, cols] in f32 of a tensor's bytes, which must be exactly its size."""
    block, nbytes, decode = FORMATS[format]
    values: Values = decode(data.reshape(rows * cols // block, nbytes)).reshape(rows, cols)
    return values
