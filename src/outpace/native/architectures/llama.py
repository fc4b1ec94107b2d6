"""Llama, and what shares its shape: SmolLM2, Mistral (a window), Mixtral (experts)."""

from __future__ import annotations

from outpace.native.architectures import experts, windows
from outpace.native.architectures.base import Architecture
from outpace.native.facts import Facts
from outpace.native.weights import ModelConfig


def _configure(facts: Facts, config: ModelConfig) -> ModelConfig:
    return experts.with_experts(facts, windows.with_windows(facts, config))


LLAMA = Architecture(
    name="llama",
    model_types=("llama", "mistral", "mixtral"),
    configure=_configure,
    keys=windows.KEYS | experts.KEYS,
    interleaved=True,
    layer_tensors={
        "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
        "block_sparse_moe.experts.*.w1.weight": "ffn_gate.*.weight",
        "block_sparse_moe.experts.*.w3.weight": "ffn_up.*.weight",
        "block_sparse_moe.experts.*.w2.weight": "ffn_down.*.weight",
    },
    arrange=experts.join_experts,
)
