"""A decoder described by a config.json of `transformers`, and what its tensors are called here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outpace.errors import BadModelFile, Unsupported
from outpace.native.architecture import ARCHITECTURES, brief, checked_count, checked_positive
from outpace.native.weights import ModelConfig, TensorInfo

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


def gguf_name(name: str) -> str | None:
    """Returns the name here of a tensor of `transformers`; None for a buffer that the config says as well.

    Raises Unsupported for a tensor that the engine would ignore.
    """
    if name in _WHOLE:
        return _WHOLE[name]
    found = _LAYER.fullmatch(name)
    if found and found[2] in _IN_LAYER:
        return f"blk.{found[1]}.{_IN_LAYER[found[2]]}"
    if name.endswith("rotary_emb.inv_freq"):
        return None
    raise Unsupported(f"the tensor {name[:80]!r} is not part of a supported decoder")


_THEIRS = {ours: theirs for theirs, ours in (_WHOLE | _IN_LAYER).items()}


def hf_name(name: str) -> str:
    """Returns the name that transformers gives to a tensor that is called `name` here; the inverse of `gguf_name`."""
    if name in _THEIRS:
        return _THEIRS[name]
    _, layer, part = name.split(".", 2)
    return f"model.layers.{layer}.{_THEIRS[part]}"


def config_from_json(
    config: Mapping[str, Any], generation: Mapping[str, Any], tensors: Mapping[str, TensorInfo]
) -> ModelConfig:
    """Returns the decoder that config.json describes; generation: generation_config.json, which may be empty.

    Raises BadModelFile or Unsupported.
    """
    architecture = config.get("model_type")
    if not isinstance(architecture, str):
        raise BadModelFile("config.json has no model_type, so nothing says what model this is")
    if architecture not in ARCHITECTURES:
        raise Unsupported(f"architecture {architecture[:40]!r} is not supported; {', '.join(ARCHITECTURES)} are")
    rope = config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise BadModelFile(f"rope_parameters must be an object, got {brief(rope)}")
    _refuse_unsupported(config, rope)
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise BadModelFile("the tensor 'model.embed_tokens.weight' is missing")

    def count(name: str, field: str, default: int | None = None) -> int:
        value = config.get(name)
        return checked_count(default if value is None else value, name, field)

    hidden, heads = count("hidden_size", "hidden_size"), count("num_attention_heads", "heads")
    return ModelConfig(
        architecture=architecture,
        layers=count("num_hidden_layers", "layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=count("num_key_value_heads", "kv_heads", heads),
        head_dim=count("head_dim", "head_dim", max(1, hidden // heads)),
        ffn_size=count("intermediate_size", "ffn_size"),
        vocab_size=checked_count(embedding.rows, "the number of rows of model.embed_tokens.weight", "vocab_size"),
        context_length=count("max_position_embeddings", "context_length"),
        rope_theta=checked_positive(rope.get("rope_theta", config.get("rope_theta", 10000.0)), "rope_theta"),
        rope_interleaved=False,
        norm_epsilon=checked_positive(config.get("rms_norm_eps", 1e-6), "rms_norm_eps"),
        attention_bias="blk.0.attn_q.bias" in tensors,
        tied="output.weight" not in tensors,
        eos_ids=_eos_ids(config, embedding.rows) | _eos_ids(generation, embedding.rows),
    )


def _refuse_unsupported(config: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    """Refuses what would change the results and that the engine does not do."""
    scaling = config.get("rope_scaling") or rope
    if not isinstance(scaling, dict):
        raise BadModelFile(f"rope_scaling must be an object, got {brief(scaling)}")
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in (None, "default"):
        raise Unsupported(f"scaled rotary positions ({brief(kind)}) are not supported")
    wrong = [
        ("hidden_act", config.get("hidden_act", "silu") != "silu"),
        ("partial_rotary_factor", config.get("partial_rotary_factor", 1) != 1),
        ("use_sliding_window", bool(config.get("use_sliding_window", False))),
        ("layer_types", any(kind != "full_attention" for kind in _list(config.get("layer_types")))),
        ("quantization_config", config.get("quantization_config") is not None),
        ("mlp_bias", bool(config.get("mlp_bias", False))),
    ]
    for name, refused in wrong:
        if refused:
            raise Unsupported(f"config.json asks for {name} = {brief(config.get(name))}, which is not supported")
    if config.get("model_type") == "llama" and config.get("sliding_window"):
        raise Unsupported(f"sliding_window = {brief(config['sliding_window'])} is not supported")


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _eos_ids(config: Mapping[str, Any], rows: int) -> frozenset[int]:
    ids = _list(config.get("eos_token_id"))
    for id in ids:
        if type(id) is not int or not 0 <= id < rows:
            raise BadModelFile(f"eos_token_id must be in [0, {rows}), got {brief(id)}")
    return frozenset(ids)
