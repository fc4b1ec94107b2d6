"""What a model file tells the native engine: one config, and tensors under GGUF's names, whatever the file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions become angles: pair i of a head turns by t theta^(-2i / head_dim) / divisors[i] at position t.

    divisors: [head_dim / 2], or empty: all 1. scale: of the cosines and sines.
    """

    theta: float = 10000.0
    divisors: tuple[float, ...] = ()
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama family, in numbers.

    rope_interleaved: rotary pairs are (2i, 2i + 1), as GGUF stores Llama; otherwise (i, i + head_dim / 2).
    tied: the output matrix is the embedding. windows: of each layer, the positions that a row attends to, its own
    included; 0: all; empty: 0 in every layer. windowed_rope: of the layers that have a window, `rope` of the others.
    query_key_norms: each head's queries and keys are normed. post_norms: what attention and the feed-forward part add
    is normed, too. norm_offset: added to the weights of norms as the file has them. attention_scale: of query-key
    products, 0: 1 / sqrt(head_dim). experts: of a mixture, `experts_used` of them by each token, of ffn_size each.
    output_ids: the tokens that the output matrix has rows for, ascending; empty: all.
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
    rope: Rope
    rope_interleaved: bool
    norm_epsilon: float
    attention_bias: bool
    tied: bool
    eos_ids: frozenset[int]
    windows: tuple[int, ...] = ()
    windowed_rope: Rope | None = None
    query_key_norms: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_scale: float = 0.0
    gate: Literal["silu", "gelu"] = "silu"
    experts: int = 0
    experts_used: int = 0
    output_ids: tuple[int, ...] = ()

    @property
    def output_size(self) -> int:
        """Rows of the output matrix."""
        return len(self.output_ids) or self.vocab_size

    def window(self, layer: int) -> int:
        """Returns the positions that a row of a layer attends to; 0: all."""
        return self.windows[layer] if self.windows else 0

    def rope_of(self, layer: int) -> Rope:
        """Returns how a layer turns its queries and keys."""
        return self.windowed_rope if self.windowed_rope and self.window(layer) else self.rope


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `format` as GGUF spells it ("Q4_K"), `rows` outputs by `cols` inputs (a vector has 1 row).

    The rows of a tensor of three dimensions are those of its matrices, one after the other.
    """

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
