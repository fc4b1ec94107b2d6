"""The forward pass in NumPy, in f32 on the dequantised weights: what the C++ engine is measured against.

Slow and plain on purpose. It keeps no cache: every call scores a whole text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outpace.native.dequantise import dequantise
from outpace.native.weights import ModelConfig, WeightFile

Floats = NDArray[np.float32]


class ReferenceModel:
    """A Llama-family decoder. `logits(ids)` returns [len(ids), V]."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.config = file.config

    def _matrix(self, name: str) -> Floats:
        info = self.file.tensors[name]
        return dequantise(self.file.read(name, 0, info.rows), info.format, info.rows, info.cols)

    def _vector(self, name: str) -> Floats:
        vector: Floats = self._matrix(name)[0]
        return vector

    def _rows(self, name: str, ids: Sequence[int]) -> Floats:
        info = self.file.tensors[name]
        rows = [dequantise(self.file.read(name, i, 1), info.format, 1, info.cols) for i in ids]
        return np.concatenate(rows)

    def logits(self, ids: Sequence[int]) -> Floats:
        """Returns the logits after each token of `ids`, [len(ids), V] f32."""
        c = self.config
        x = self._rows("token_embd.weight", ids)
        cos, sin = rope_table(c, len(ids))
        for layer in range(c.layers):
            at = f"blk.{layer}."
            h = rms_norm(x, self._vector(at + "attn_norm.weight"), c.norm_epsilon)
            q, k, v = (self._project(h, at + name) for name in ("attn_q", "attn_k", "attn_v"))
            q = rotate(q.reshape(len(ids), c.heads, c.head_dim), cos, sin, c.rope_interleaved)
            k = rotate(k.reshape(len(ids), c.kv_heads, c.head_dim), cos, sin, c.rope_interleaved)
            mixed = attention(q, k, v.reshape(len(ids), c.kv_heads, c.head_dim))
            x = x + mixed @ self._matrix(at + "attn_output.weight").T
            h = rms_norm(x, self._vector(at + "ffn_norm.weight"), c.norm_epsilon)
            gate = h @ self._matrix(at + "ffn_gate.weight").T
            up = h @ self._matrix(at + "ffn_up.weight").T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self._matrix(at + "ffn_down.weight").T
        head = "token_embd.weight" if c.tied else "output.weight"
        out: Floats = rms_norm(x, self._vector("output_norm.weight"), c.norm_epsilon) @ self._matrix(head).T
        return out

    def _project(self, h: Floats, name: str) -> Floats:
        out: Floats = h @ self._matrix(name + ".weight").T
        return out + self._vector(name + ".bias") if self.config.attention_bias else out


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight along the last axis."""
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    normed: Floats = (x / np.sqrt(mean + epsilon)).astype(np.float32) * weight
    return normed


def rope_table(config: ModelConfig, positions: int) -> tuple[Floats, Floats]:
    """Returns cos and sin [positions, head_dim / 2] of position * theta^(-2i / head_dim)."""
    rates = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    angles = np.outer(np.arange(positions), rates)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotate(x: Floats, cos: Floats, sin: Floats, interleaved: bool) -> Floats:
    """Returns x [T, heads, head_dim] with each rotary pair turned by its angle."""
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    cos, sin = cos[:, None, :], sin[:, None, :]
    out = np.empty_like(x)
    a, b = (out[..., 0::2], out[..., 1::2]) if interleaved else (out[..., :half], out[..., half:])
    a[...] = first * cos - second * sin
    b[...] = first * sin + second * cos
    return out


def attention(q: Floats, k: Floats, v: Floats) -> Floats:
    """Returns causal attention [T, heads * head_dim]; query head h reads kv head h // (heads / kv_heads)."""
    length, heads, dim = q.shape
    group = heads // k.shape[1]
    mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    out = np.empty_like(q)
    for h in range(heads):
        scores = q[:, h] @ k[:, h // group].T / np.float32(np.sqrt(dim)) + mask
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = weights / weights.sum(axis=1, keepdims=True) @ v[:, h // group]
    return out.reshape(length, heads * dim)
