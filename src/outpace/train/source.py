"""What a head takes from its target: embeddings, the output matrix's rows, the last layer to start from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.errors import Unsupported
from outpace.native.dequantise import dequantise
from outpace.native.loading import open_weights
from outpace.native.weights import ModelConfig, WeightFile

_LAYER = {
    "attn_norm": "attn_norm.weight",
    "attn_q": "attn_q.weight",
    "attn_k": "attn_k.weight",
    "attn_v": "attn_v.weight",
    "attn_output": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "ffn_gate": "ffn_gate.weight",
    "ffn_up": "ffn_up.weight",
    "ffn_down": "ffn_down.weight",
}


@dataclass(frozen=True, slots=True)
class Source:
    """The frozen parts of a target in f32: embeddings [V, H], output rows [V, H], final norm [H], last layer."""

    config: ModelConfig
    embedding: Tensor
    output: Tensor
    output_norm: Tensor
    last_layer: dict[str, Tensor]

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def hidden_layers(self) -> int:
        return self.config.layers

    def embed(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Returns the embeddings [N, H] of tokens, as the target that runs does."""
        rows: NDArray[np.float32] = self.embedding[list(ids)].numpy()
        return rows

    def laws(self, hidden: Tensor, log_sums: Tensor, rows: Tensor) -> Tensor:
        """Returns log p [..., D] in f32 from hidden states of the last layer [..., H].

        rows [D, H]: the output rows of the tokens asked for. Those in bf16 are multiplied as such: logits move by
        0.02, in a quarter of the time.
        """
        x = hidden.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.norm_epsilon) * self.output_norm
        return (x.to(rows.dtype) @ rows.T).float() - log_sums[..., None]


def read_source(path: Path) -> Source:
    """Returns the parts of a model file, dequantised. Raises as `open_weights` does."""
    with closing(open_weights(path)) as file:
        config = file.config
        check_family(config)
        embedding = _matrix(file, "token_embd.weight")
        return Source(
            config=config,
            embedding=embedding,
            output=embedding if config.tied else _matrix(file, "output.weight"),
            output_norm=_matrix(file, "output_norm.weight")[0],
            last_layer={
                ours: _matrix(file, f"blk.{config.layers - 1}.{theirs}").squeeze(0) for ours, theirs in _LAYER.items()
            },
        )


def check_family(config: ModelConfig) -> None:
    """Raises Unsupported unless a layer of the target can be a head's: Llama's shape, without extras."""
    extras = {
        "norms of queries and keys": config.query_key_norms,
        "norms after attention": config.post_norms,
        "offset norms": config.norm_offset != 0,
        "scaled embeddings": config.embedding_scale != 1,
        "another scale of attention": config.attention_scale != 0,
        "another gate than silu": config.gate != "silu",
        "experts": config.experts > 0,
    }
    found = [name for name, there in extras.items() if there]
    if found:
        raise Unsupported(f"heads are trained for targets with layers like Llama's, this one has {', '.join(found)}")


def _matrix(file: WeightFile, name: str) -> Tensor:
    info = file.tensors[name]
    return torch.from_numpy(
        np.ascontiguousarray(dequantise(file.read(name, 0, info.rows), info.format, info.rows, info.cols))
    )
