"""Qwen2 (biases), Qwen3 (normed queries and keys) and its mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from outpace.native.architectures import experts, windows
from outpace.native.architectures.base import Architecture
from outpace.native.facts import Facts
from outpace.native.weights import ModelConfig


def _qwen3(facts: Facts, config: ModelConfig) -> ModelConfig:
    return replace(windows.with_windows(facts, config), query_key_norms=True)


def _qwen3moe(facts: Facts, config: ModelConfig) -> ModelConfig:
    return experts.with_experts(facts, _qwen3(facts, config))


_NORMS = {"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight"}

QWEN2 = Architecture("qwen2", ("qwen2",), windows.with_windows, windows.KEYS)
QWEN3 = Architecture("qwen3", ("qwen3",), _qwen3, windows.KEYS, layer_tensors=_NORMS)
QWEN3MOE = Architecture(
    name="qwen3moe",
    model_types=("qwen3_moe",),
    configure=_qwen3moe,
    keys=windows.KEYS | experts.KEYS,
    layer_tensors=_NORMS
    | {"mlp.gate.weight": "ffn_gate_inp.weight"}
    | {f"mlp.experts.*.{part}_proj.weight": f"ffn_{part}.*.weight" for part in ("gate", "up", "down")},
    arrange=experts.join_experts,
)
