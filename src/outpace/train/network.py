"""The draft heads in torch: one decoder layer on the target's features, unrolled over its own outputs.

Position t of a text has the target's hidden states at token t and the next token, t + 1, which the target has drawn.
Row t of the first step is x = fuse(hidden states) + embed(token t + 1) through one decoder layer; the final norm and
the rows of the target's own output matrix give the draft's law of token t + 2. Step s > 0 goes on without the target:

    eagle      x = state(y of step s - 1) + embed(token t + s + 1)  (EAGLE, arXiv 2401.15077; several layers fused and
               steps unrolled in training as in EAGLE-3, 2503.01840)
    parallel   x = state(x of step 0) + mask[s], no token: all steps of a block are one pass (as P-EAGLE and PARD do)

A step's row sees the first step's rows up to the token where its own chain began, and its own chain.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from outpace.heads.config import HeadConfig


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight along the last axis, in f32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Returns x [B, T, heads, head_dim] with each rotary pair turned by its angle; cos and sin [T, head_dim / 2]."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class DraftNetwork(nn.Module):
    """The `eagle` and `parallel` heads. Weights are named as the head's file names them."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = c = config
        h = c.hidden_size

        def matrix(rows: int, cols: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, cols) * cols**-0.5)

        self.tap_norms = nn.Parameter(torch.ones(len(c.taps), h))
        self.fuse = matrix(h, len(c.taps) * h)
        self.embed = matrix(h, h)
        self.state = matrix(h, h)
        self.mask = nn.Parameter(torch.zeros(c.block, h))
        self.attn_norm = nn.Parameter(torch.ones(h))
        self.attn_q = matrix(c.query_size, h)
        self.attn_k = matrix(c.kv_size, h)
        self.attn_v = matrix(c.kv_size, h)
        self.attn_output = matrix(h, c.query_size)
        self.ffn_norm = nn.Parameter(torch.ones(h))
        self.ffn_gate = matrix(c.ffn_size, h)
        self.ffn_up = matrix(c.ffn_size, h)
        self.ffn_down = matrix(h, c.ffn_size)
        self.output_norm = nn.Parameter(torch.ones(h))

    def first(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        """Returns x of the first step [B, T, H] from hidden [B, T, taps, H] and the next tokens' embeddings."""
        weights = (self.fuse.unflatten(-1, self.tap_norms.shape) * self.tap_norms).flatten(-2)
        return self.units(hidden).flatten(-2) @ weights.T + self.embedded(embedded)

    def embedded(self, embedded: Tensor) -> Tensor:
        return self.unit(embedded) @ self.embed.T

    @torch.no_grad()
    def units(self, hidden: Tensor) -> Tensor:
        """Returns the target's states normed, text by text: all at once they are many times what the cache holds."""
        out = torch.empty_like(hidden, dtype=torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32)
        for text, normed in zip(hidden, out, strict=True):
            normed.copy_(self.unit(text))
        return out

    def unit(self, x: Tensor) -> Tensor:
        return rms_norm(x, torch.ones(()), self.config.norm_epsilon)

    def steps(self, hidden: Tensor, embedded: Tensor, count: int, begin: int = 0) -> list[Tensor]:
        """Returns the normed outputs of `count` steps for the rows from `begin` on, each [B, T - begin, H].

        hidden [B, T, taps, H] at each token, embedded [B, T, H] of the token after each. Row t of step s belongs to
        the chain that began at t - s and proposes token t + 2; rows with t - s < begin are without meaning.
        """
        whole = self.first(hidden, embedded)
        first, embedded = whole[:, begin:], embedded[:, begin:]
        seen = _Seen(self.config, hidden.shape[1], begin)
        y = self._layer(first, whole, seen)
        out = [self._normed(y)]
        for step in range(1, count):
            if self.config.kind == "eagle":
                x = later(self.unit(y)) @ self.state.T + self.embedded(embedded)
            else:
                x = later(self.unit(first), step) @ self.state.T + self.mask[step]
            y = self._layer(x, x, seen)
            out.append(self._normed(y))
        return out

    def _normed(self, y: Tensor) -> Tensor:
        return rms_norm(y, self.output_norm, self.config.norm_epsilon)

    def _layer(self, x: Tensor, source: Tensor, seen: _Seen) -> Tensor:
        """Returns the layer's outputs for the rows x; keys and values are those of `source`, which `seen` keeps."""
        c = self.config
        normed = rms_norm(source, self.attn_norm, c.norm_epsilon)
        seen.add(normed @ self.attn_k.T, normed @ self.attn_v.T)
        attended = seen.attend(normed[:, -x.shape[1] :] @ self.attn_q.T)
        x = x + attended @ self.attn_output.T
        normed = rms_norm(x, self.ffn_norm, c.norm_epsilon)
        return x + (nn.functional.silu(normed @ self.ffn_gate.T) * (normed @ self.ffn_up.T)) @ self.ffn_down.T


class _Seen:
    """Keys and values of the steps so far: of all positions for the first step, from `begin` on for the others."""

    def __init__(self, config: HeadConfig, length: int, begin: int) -> None:
        self.config = config
        self.begin = begin
        rates = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        self._cos, self._sin = angles.cos().float(), angles.sin().float()
        self._past = torch.ones(length, length, dtype=torch.bool).tril()
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def _turned(self, x: Tensor, heads: int) -> Tensor:
        c = self.config
        x = x.float().unflatten(-1, (heads, c.head_dim))
        first = self._cos.shape[0] - x.shape[1]
        return rotate(x, self._cos[first:], self._sin[first:], c.rope_interleaved)

    def add(self, keys: Tensor, values: Tensor) -> None:
        self._keys.append(self._turned(keys, self.config.kv_heads))
        self._values.append(values.float().unflatten(-1, (self.config.kv_heads, self.config.head_dim)))

    def attend(self, queries: Tensor) -> Tensor:
        """Returns [B, T - begin, heads * head_dim] for queries of the latest step."""
        c, step = self.config, len(self._keys) - 1
        q = self._turned(queries, c.heads).unflatten(2, (c.kv_heads, -1)) * c.head_dim**-0.5
        past = self._past.tril(-step)[self.begin :]
        scores = torch.einsum("btkgd,bskd->bkgts", q, self._keys[0]).masked_fill(~past, float("-inf"))
        length = scores.shape[-1]
        if step:
            scores = torch.cat((scores, torch.einsum("btkgd,rbtkd->bkgtr", q, self._chain(self._keys))), -1)
        weights = scores.softmax(-1)
        out = torch.einsum("bkgts,bskd->btkgd", weights[..., :length], self._values[0])
        if step:
            out = out + torch.einsum("bkgtr,rbtkd->btkgd", weights[..., length:], self._chain(self._values))
        return out.flatten(2)

    def _chain(self, kept: list[Tensor]) -> Tensor:
        """Returns what each row's own chain kept, the row itself last: [steps after the first, B, T - begin, ...]."""
        step = len(kept) - 1
        return torch.stack([later(kept[r], step - r) for r in range(1, step + 1)])


def later(x: Tensor, by: int = 1) -> Tensor:
    """Returns x [B, T, ...] moved to later positions; what comes in is 0."""
    if by == 0:
        return x
    return torch.cat((torch.zeros_like(x[:, :by]), x[:, : x.shape[1] - by]), 1)
