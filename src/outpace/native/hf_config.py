"""A decoder described by a config.json of `transformers`, and what its tensors are called here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outpace.errors import BadModelFile, Unsupported
from outpace.native.architecture import common_config, embedding_of, supported
from outpace.native.architectures import BY_MODEL_TYPE, Architecture
from outpace.native.facts import Facts
from outpace.native.metadata import brief
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    **{f"self_attn.{n}_proj.{part}": f"attn_{n}.{part}" for n in "qkv" for part in ("weight", "bias")},
    "self_attn.o_proj.weight": "attn_output.weight",
    **{f"mlp.{n}_proj.weight": f"ffn_{n}.weight" for n in ("gate", "up", "down")},
}
_LAYER = re.compile(r"model\.layers\.(0|[1-9]\d{0,3})\.(.+)")
_EXPERT = re.compile(r"\.experts\.(0|[1-9]\d{0,3})\.")

# Ours, which are GGUF's -> theirs, the first that is there.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "block_count": ("num_hidden_layers",),
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.sliding_window": ("sliding_window",),
    "attention.sliding_window_pattern": ("layer_types", "sliding_window_pattern"),
    "attention.query_scalar": ("query_pre_attn_scalar",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq",),
    "rope.scaling.original_context_length": ("original_max_position_embeddings",),
}
_ROPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "rope.freq_base": ("rope_theta",),
    "rope.scaling.type": ("rope_type", "type"),
    "rope.scaling.factor": ("factor",),
    "rope.scaling.low_freq_factor": ("low_freq_factor",),
    "rope.scaling.high_freq_factor": ("high_freq_factor",),
    "rope.scaling.original_context_length": ("original_max_position_embeddings",),
    "rope.scaling.short_factor": ("short_factor",),
    "rope.scaling.attn_factor": ("attention_factor",),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Returns the architecture that config.json names. Raises BadModelFile or Unsupported."""
    name = config.get("model_type")
    if not isinstance(name, str):
        raise BadModelFile("config.json has no model_type, so nothing says what model this is")
    if name not in BY_MODEL_TYPE and f"{name}_text" in BY_MODEL_TYPE:
        raise Unsupported(
            f"{name} with a vision part is not supported; its text part alone ({name}_text) is, or a GGUF file"
        )
    return supported(BY_MODEL_TYPE.get(name), name)


def gguf_name(name: str, architecture: Architecture) -> str | None:
    """Returns the name here of a tensor of `transformers`; None for a buffer that the config says as well.

    Raises Unsupported for a tensor that the engine would ignore.
    """
    if name in _WHOLE:
        return _WHOLE[name]
    found = _LAYER.fullmatch(name)
    if found:
        expert = _EXPERT.search(found[2])
        inside = _EXPERT.sub(".experts.*.", found[2])
        known = architecture.layer_tensors.get(inside) or _IN_LAYER.get(inside)
        if known is not None:
            return f"blk.{found[1]}." + (known.replace("*", expert[1]) if expert else known)
    if name.endswith("rotary_emb.inv_freq"):
        return None
    raise Unsupported(f"the tensor {name[:80]!r} is not part of a supported {architecture.name} decoder")


_THEIRS = {ours: theirs for theirs, ours in (_WHOLE | _IN_LAYER).items()}


def hf_name(name: str) -> str:
    """Returns the name that transformers gives to a tensor that is called `name` here; the inverse of `gguf_name`."""
    if name in _THEIRS:
        return _THEIRS[name]
    _, layer, part = name.split(".", 2)
    return f"model.layers.{layer}.{_THEIRS[part]}"


def config_from_json(
    config: Mapping[str, Any], generation: Mapping[str, Any], architecture: Architecture, files: TensorBytes
) -> ModelConfig:
    """Returns the decoder that config.json describes, its tensors arranged as that needs them.

    generation: generation_config.json, which may be empty. Raises BadModelFile or Unsupported.
    """
    _refuse_unsupported(config)
    values, theirs = _facts(config)
    rows = embedding_of(files.tensors, "model.embed_tokens.weight").rows
    eos_ids = _eos_ids(config, rows) | _eos_ids(generation, rows)
    facts = Facts(values, lambda name: theirs.get(name, _NAMES.get(name, _ROPE_NAMES.get(name, (name,)))[0]))
    found = common_config(architecture, facts, files, eos_ids, interleaved=False)
    return replace(found, norm_offset=architecture.norm_offset)


def _facts(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns what config.json states under GGUF's names, and what it calls each of them."""
    values: dict[str, Any] = {"attention.layer_norm_rms_epsilon": 1e-6}
    theirs: dict[str, str] = {}

    def take(source: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> None:
        for ours, candidates in names.items():
            name = next((name for name in candidates if source.get(name) is not None), None)
            if name is not None:
                values[ours], theirs[ours] = source[name], name

    take(config, _NAMES)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise BadModelFile(f"rope_parameters must be an object, got {brief(rope)}")
    if isinstance(rope.get("full_attention"), dict):  # one for each kind of layer
        windowed = rope.get("sliding_attention")
        if isinstance(windowed, dict) and windowed.get("rope_theta") is not None:
            values["rope.freq_base_swa"] = windowed["rope_theta"]
        rope = rope["full_attention"]
    take(rope, _ROPE_NAMES)
    _take_windows(config, values)
    return values, theirs


def _take_windows(config: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Says of each layer whether it has a window: by layer_types, or from Qwen2's max_window_layers on."""
    layers, kinds = config.get("num_hidden_layers"), config.get("layer_types")
    asks_for_them = config.get("model_type") in ("qwen2", "qwen3", "qwen3_moe")
    if config.get("use_sliding_window", not asks_for_them) is not True:
        values.pop("attention.sliding_window", None)
    elif isinstance(kinds, list):
        unknown = next((kind for kind in kinds if kind not in ("full_attention", "sliding_attention")), None)
        if unknown is not None:
            raise Unsupported(f"layer_types has {brief(unknown)}; full_attention and sliding_attention are supported")
        values["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in kinds]
    elif asks_for_them and type(layers) is int and 0 <= layers <= 1 << 10:
        first = config.get("max_window_layers")
        if type(first) is not int:
            raise BadModelFile(f"max_window_layers must be an integer, got {brief(first)}")
        values["attention.sliding_window_pattern"] = [layer >= first for layer in range(layers)]


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    """Refuses what would change the results and that the engine does not do."""
    gelu = config.get("model_type") == "gemma3_text"
    wrong = [
        ("hidden_act", not gelu and config.get("hidden_act", "silu") != "silu"),
        ("hidden_activation", gelu and config.get("hidden_activation") != "gelu_pytorch_tanh"),
        ("partial_rotary_factor", config.get("partial_rotary_factor", 1) != 1),
        ("quantization_config", config.get("quantization_config") is not None),
        ("mlp_bias", bool(config.get("mlp_bias", False))),
        ("final_logit_softcapping", config.get("final_logit_softcapping") is not None),
        ("attn_logit_softcapping", config.get("attn_logit_softcapping") is not None),
        ("use_bidirectional_attention", bool(config.get("use_bidirectional_attention", False))),
        ("sliding_window", config.get("model_type") == "llama" and bool(config.get("sliding_window"))),
        ("norm_topk_prob", config.get("model_type") == "qwen3_moe" and config.get("norm_topk_prob") is not True),
        ("decoder_sparse_step", config.get("decoder_sparse_step", 1) != 1),
        ("mlp_only_layers", bool(config.get("mlp_only_layers"))),
    ]
    for name, refused in wrong:
        if refused:
            raise Unsupported(f"config.json asks for {name} = {brief(config.get(name))}, which is not supported")


def _eos_ids(config: Mapping[str, Any], rows: int) -> frozenset[int]:
    stated = config.get("eos_token_id")
    ids = stated if isinstance(stated, list) else [] if stated is None else [stated]
    for id in ids:
        if type(id) is not int or not 0 <= id < rows:
            raise BadModelFile(f"eos_token_id must be in [0, {rows}), got {brief(id)}")
    return frozenset(ids)
