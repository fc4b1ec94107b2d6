"""The forward pass in NumPy, in f32 on the dequantised weights: what the C++ engine is measured against.

Slow and plain on purpose. It keeps no cache: every call scores a whole text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outpace.native.dequantise import dequantise
from outpace.native.weights import Rope, WeightFile

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
        x = self._rows("token_embd.weight", ids) * np.float32(c.embedding_scale)
        for layer in range(c.layers):
            at = f"blk.{layer}."
            mixed = self._attention(self._norm(x, at + "attn_norm"), layer)
            x = x + (self._norm(mixed, at + "post_attention_norm") if c.post_norms else mixed)
            h = self._norm(x, at + "ffn_norm")
            moved = self._mixture(h, at) if c.experts else self._feed_forward(h, at)
            x = x + (self._norm(moved, at + "post_ffw_norm") if c.post_norms else moved)
        out: Floats = self._norm(x, "output_norm") @ self._matrix(self._head()).T
        return out

    def _head(self) -> str:
        return "token_embd.weight" if self.config.tied else "output.weight"

    def _norm(self, x: Floats, name: str) -> Floats:
        weight = self._vector(name + ".weight") + np.float32(self.config.norm_offset)
        return rms_norm(x, weight, self.config.norm_epsilon)

    def _attention(self, h: Floats, layer: int) -> Floats:
        """Returns what attention adds to the hidden states [T, H]."""
        c, at = self.config, f"blk.{layer}."
        q, k, v = (self._project(h, at + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = (rows.reshape(len(h), -1, c.head_dim) for rows in (q, k, v))
        if c.query_key_norms:
            q, k = self._norm(q, at + "attn_q_norm"), self._norm(k, at + "attn_k_norm")
        cos, sin = rope_table(c.rope_of(layer), c.head_dim, len(h))
        q, k = (rotate(rows, cos, sin, c.rope_interleaved) for rows in (q, k))
        scale = c.attention_scale or c.head_dim**-0.5
        out: Floats = attention(q, k, v, scale, c.window(layer)) @ self._matrix(at + "attn_output.weight").T
        return out

    def _project(self, h: Floats, name: str) -> Floats:
        out: Floats = h @ self._matrix(name + ".weight").T
        return out + self._vector(name + ".bias") if self.config.attention_bias else out

    def _feed_forward(self, h: Floats, at: str) -> Floats:
        gate, up, down = (self._matrix(f"{at}ffn_{name}.weight") for name in ("gate", "up", "down"))
        return self._gated(h, gate, up, down)

    def _gated(self, h: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
        gated = silu(h @ gate.T) if self.config.gate == "silu" else gelu(h @ gate.T)
        out: Floats = gated * (h @ up.T) @ down.T
        return out

    def _mixture(self, h: Floats, at: str) -> Floats:
        """Returns the sum of each row's experts [T, H], weighted by the softmax over their scores."""
        c, out = self.config, np.zeros_like(h)
        parts = [self._matrix(f"{at}ffn_{name}_exps.weight") for name in ("gate", "up", "down")]
        gate, up, down = (part.reshape(c.experts, -1, part.shape[1]) for part in parts)
        scores = h @ self._matrix(at + "ffn_gate_inp.weight").T
        for row, chosen in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, : c.experts_used]):
            weights = np.exp(scores[row, chosen] - scores[row].max())
            for expert, weight in zip(chosen, weights / weights.sum(), strict=True):
                out[row] += weight * self._gated(h[row], gate[expert], up[expert], down[expert])
        return out


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight along the last axis."""
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    normed: Floats = (x / np.sqrt(mean + epsilon)).astype(np.float32) * weight
    return normed


def silu(x: Floats) -> Floats:
    """Returns x / (1 + e^-x)."""
    out: Floats = x / (1 + np.exp(-x))
    return out


def gelu(x: Floats) -> Floats:
    """Returns x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    out: Floats = x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3))) / 2
    return out


def rope_table(rope: Rope, head_dim: int, positions: int) -> tuple[Floats, Floats]:
    """Returns cos and sin [positions, head_dim / 2] of position * theta^(-2i / head_dim) / divisors."""
    rates = rope.theta ** (-np.arange(0, head_dim, 2) / head_dim) / (rope.divisors or 1.0)
    angles = np.outer(np.arange(positions), rates)
    return (np.cos(angles) * rope.scale).astype(np.float32), (np.sin(angles) * rope.scale).astype(np.float32)


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


def attention(q: Floats, k: Floats, v: Floats, scale: float, window: int = 0) -> Floats:
    """Returns causal attention [T, heads * head_dim]; query head h reads kv head h // (heads / kv_heads).

    window: the latest positions that a row attends to, its own included; 0: all.
    """
    length, heads, dim = q.shape
    group = heads // k.shape[1]
    hidden = np.triu(np.ones((length, length), np.bool_), 1)
    if window:
        hidden |= np.tril(np.ones((length, length), np.bool_), -window)
    mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
    out = np.empty_like(q)
    for h in range(heads):
        scores = q[:, h] @ k[:, h // group].T * np.float32(scale) + mask
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = weights / weights.sum(axis=1, keepdims=True) @ v[:, h // group]
    return out.reshape(length, heads * dim)
