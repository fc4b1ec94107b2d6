"""What a model file tells the native engine: one config, and tensors under GGUF's names, whatever the file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama family, in numbers.

    rope_interleaved: rotary pairs are (2i, 2i + 1), as GGUF stores Llama; otherwise (i, i + head_dim / 2).
    tied: the output matrix is the embedding.
    """

    architecture: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    context_length: int
    rope_theta: float
    rope_interleaved: bool
    norm_epsilon: float
    attention_bias: bool
    tied: bool
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `format` as GGUF spells it ("Q4_K"), `rows` outputs by `cols` inputs (a vector has 1 row)."""

    name: str
    format: str
    rows: int
    cols: int
    nbytes: int


class WeightFile(Protocol):
    """An opened and checked model file. Tensor names are GGUF's: token_embd.weight, blk.0.attn_q.weight, ..."""

    path: Path
    config: ModelConfig
    tensors: Mapping[str, TensorInfo]

    def read(self, name: str, first_row: int, rows: int) -> NDArray[np.uint8]:
        """Returns the bytes of rows [first_row, first_row + rows), read from the file now (not mapped).

        Raises BadModelFile when the file has changed or shrunk since it was opened.
        """
        ...

    def close(self) -> None: ...
