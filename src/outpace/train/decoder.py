"""A small model as a network to be trained: Llama's and Qwen2's decoder in torch, from a GGUF file and back to one.

Embeddings and output rows stay as they are: they are most of a small model's bytes, and what is healed is its layers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from outpace.errors import UsageError
from outpace.native.cutting import BITS, PLAIN
from outpace.native.dequantise import dequantise
from outpace.native.gguf import GgufFile, open_gguf
from outpace.native.gguf_writing import NewTensor, write_gguf
from outpace.native.quantise import FORMATS, quantise
from outpace.native.weights import ModelConfig, TensorInfo
from outpace.train.network import rms_norm, rotate

FEW_BITS = 5.0
"""A format that cannot be written gives way to that of 4 bits up to here, and to that of 8 above."""


class DecoderConfig:
    """What a run of training is of. block: tokens ahead that are proposed; a model proposes one after the other."""

    block = 1

    def __init__(self, path: Path, model: ModelConfig) -> None:
        self.model = model
        with path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "model", "source": self.sha256}


class Decoder(nn.Module):
    """The layers and norms of a GGUF model as parameters; its embeddings and output rows [D, H] are frozen."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with closing(open_gguf(path)) as file:
            _check(path, file.config)
            self.config = DecoderConfig(path, file.config)
            self.output_ids = torch.tensor(file.config.output_ids or range(file.config.vocab_size))
            self.embedding = _values(file, "token_embd.weight")
            self.output = self.embedding if file.config.tied else _values(file, "output.weight")
            trained = [name for name in file.tensors if _is_trained(name)]
            self.weights = nn.ParameterDict({_key(name): nn.Parameter(_values(file, name)) for name in trained})

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the normed outputs [B, T, H] after tokens [B, T]; row t is about token t + 1."""
        c = self.config.model
        x = self.embedding[tokens]
        rates = c.rope.theta ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
        angles = torch.outer(torch.arange(tokens.shape[1], dtype=torch.float64), rates)
        turn = angles.cos().float(), angles.sin().float()
        for layer in range(c.layers):
            x = x + self._attended(layer, rms_norm(x, self._w(layer, "attn_norm.weight"), c.norm_epsilon), turn)
            normed = rms_norm(x, self._w(layer, "ffn_norm.weight"), c.norm_epsilon)
            gate, up = (normed @ self._w(layer, f"ffn_{name}.weight").T for name in ("gate", "up"))
            x = x + (silu(gate) * up) @ self._w(layer, "ffn_down.weight").T
        return rms_norm(x, self.weights[_key("output_norm.weight")], c.norm_epsilon)

    def _attended(self, layer: int, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        c = self.config.model
        q, k, v = (self._projected(layer, name, x) for name in ("attn_q", "attn_k", "attn_v"))
        q, k = (rotate(part.float(), *turn, c.rope_interleaved) for part in (q, k))
        heads = [part.float().transpose(1, 2) for part in (q, k, v)]
        out = scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2) @ self._w(layer, "attn_output.weight").T

    def _projected(self, layer: int, name: str, x: Tensor) -> Tensor:
        """Returns [B, T, heads, head_dim]."""
        out = x @ self._w(layer, f"{name}.weight").T
        if self.config.model.attention_bias:
            out = out + self._w(layer, f"{name}.bias")
        return out.unflatten(-1, (-1, self.config.model.head_dim))

    def _w(self, layer: int, name: str) -> Tensor:
        return self.weights[_key(f"blk.{layer}.{name}")]

    def write(self, source: Path, out: Path, command: str, progress: Callable[[float], None]) -> None:
        """Writes the model as the source has it, in the same formats where they can be written, all or nothing."""
        with closing(open_gguf(source)) as file:
            tensors = [self._tensor(file, info) for info in file.tensors.values()]
            changed: dict[str, int | str | Sequence[int]] = {"outpace.draft.healed": command}
            write_gguf(out, file.keys(), changed, tensors, progress)

    def _tensor(self, file: GgufFile, info: TensorInfo) -> NewTensor:
        name, rows, cols = info.name, info.rows, info.cols
        if not _is_trained(name):
            return NewTensor(name, info.format, rows, cols, partial(file.read, name, 0, rows))
        format = "F32" if rows == 1 else _written(info)
        values = self.weights[_key(name)].detach().reshape(rows, cols).numpy()
        return NewTensor(name, format, rows, cols, lambda: quantise(values, format))


def _check(path: Path, config: ModelConfig) -> None:
    """Raises UsageError for a model that is more than the plain decoder."""
    more = config.windows or config.rope.divisors or config.rope.scale != 1.0
    if config.architecture not in PLAIN or more:
        found = "one with windows or stretched positions" if more else config.architecture
        raise UsageError(f"{path}: drafts of plain {' and '.join(PLAIN)} can be healed, got {found}")


def _is_trained(name: str) -> bool:
    return name not in ("token_embd.weight", "output.weight")


def _key(name: str) -> str:
    return name.replace(".", "-")  # torch keeps dots for itself


def _written(info: TensorInfo) -> str:
    if info.format in FORMATS:
        return info.format
    return BITS[4] if 8 * info.nbytes / (info.rows * info.cols) <= FEW_BITS else BITS[8]


def _values(file: GgufFile, name: str) -> Tensor:
    info = file.tensors[name]
    found: NDArray[np.float32] = dequantise(file.read(name, 0, info.rows), info.format, info.rows, info.cols)
    return torch.from_numpy(np.array(found)).squeeze(0) if info.rows == 1 else torch.from_numpy(np.array(found))
