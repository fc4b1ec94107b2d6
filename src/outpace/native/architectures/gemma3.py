"""Gemma 3, its text part: four norms a layer, normed queries and keys, scaled embeddings, and windows in five layers
of six, whose rotations have a base of their own."""

from __future__ import annotations

import math
from dataclasses import replace

from outpace.native.architectures import windows
from outpace.native.architectures.base import Architecture
from outpace.native.facts import Facts
from outpace.native.weights import ModelConfig, Rope

_FULL_EVERY = 6
_LAYERS_OF_27B = 62
"""Its query-key products alone are scaled by the hidden size a head, and no key of a GGUF file says so."""


def _configure(facts: Facts, config: ModelConfig) -> ModelConfig:
    scalar = facts.number("attention.query_scalar", float(config.head_dim))
    if facts.get("attention.query_scalar") is None and config.layers == _LAYERS_OF_27B:
        scalar = config.hidden_size / config.heads
    return replace(
        windows.with_windows(facts, config, full_every=_FULL_EVERY),
        windowed_rope=Rope(facts.number("rope.freq_base_swa", 10000.0)),
        query_key_norms=True,
        post_norms=True,
        embedding_scale=math.sqrt(config.hidden_size),
        attention_scale=1 / math.sqrt(scalar),
        gate="gelu",
    )


GEMMA3 = Architecture(
    name="gemma3",
    model_types=("gemma3_text",),
    configure=_configure,
    keys=windows.KEYS | {"rope.freq_base_swa"},
    layer_tensors={
        "self_attn.q_norm.weight": "attn_q_norm.weight",
        "self_attn.k_norm.weight": "attn_k_norm.weight",
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "pre_feedforward_layernorm.weight": "ffn_norm.weight",
        "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    },
    norm_offset=1.0,
)
