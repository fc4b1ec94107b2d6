"""Writes the tiny models of gguf_writer as folders of `transformers`: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguf_writer import CHAT_TEMPLATE, CONTROL_TOKENS, Tiny, small_vocabulary, tiny_tensors

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
_OWN_NAMES = {
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    "qwen3moe": {
        "ffn_gate_inp": "mlp.gate",
        **{f"ffn_{part}_exps": f"mlp.experts.*.{part}_proj" for part in ("gate", "up", "down")},
    },
    "llama": {
        "ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
        "ffn_up_exps": "block_sparse_moe.experts.*.w3", "ffn_down_exps": "block_sparse_moe.experts.*.w2",
    },
}  # fmt: skip
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def hf_name(name: str, architecture: str = "llama") -> str:
    """Returns the name that `transformers` gives to a tensor of GGUF; * stands for an expert."""
    if name in _NAMES:
        return _NAMES[name]
    _, layer, part, kind = name.split(".")
    theirs = (_NAMES | _OWN_NAMES.get(architecture, {}))[part]
    return f"model.layers.{layer}.{theirs}.{kind}"


def halves(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Returns the rows of a rotary matrix or bias with pairs (2i, 2i + 1) of each head moved to (i, i + d / 2)."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(shape)


def safetensors_bytes(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Returns a whole file of name -> (dtype, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def tiny_hf_tensors(shape: Tiny, seed: int = 0) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Returns the tensors of the tiny GGUF of the same shape and seed."""
    out = {}
    for name, tensor in tiny_tensors(shape, seed).items():
        rows = np.frombuffer(tensor.data, _DTYPES[tensor.format]).reshape(tensor.shape[::-1])
        if shape.architecture == "llama" and ".attn_q." in name:
            rows = halves(rows, shape.heads)
        if shape.architecture == "llama" and ".attn_k." in name:
            rows = halves(rows, shape.kv_heads)
        if shape.architecture == "gemma3" and name.endswith("norm.weight"):
            rows = rows - np.float32(1)
        theirs = hf_name(name, shape.architecture)
        for expert, part in enumerate(rows) if rows.ndim == 3 else [(0, rows)]:
            out[theirs.replace("*", str(expert))] = (tensor.format, part.shape, part.tobytes())
    return out


def tiny_config(shape: Tiny) -> dict[str, Any]:
    """Returns the config.json of a tiny model."""
    kind = shape.architecture
    if kind == "llama":
        kind = "mixtral" if shape.experts else "mistral" if shape.window else "llama"
    config = {
        "model_type": kind, "num_hidden_layers": shape.layers, "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab_size, "max_position_embeddings": shape.context, "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.epsilon, "hidden_act": "silu", "tie_word_embeddings": shape.tied, "eos_token_id": 2,
        "bos_token_id": 1, "pad_token_id": None, "torch_dtype": "float32",
    }  # fmt: skip
    if shape.head_dim:
        config["head_dim"] = shape.head_dim
    if kind != "llama":
        config["sliding_window"] = shape.window or None
    if kind == "mixtral":
        config |= {"num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_used}
    if kind == "qwen3moe":
        config |= {
            "model_type": "qwen3_moe", "num_experts": shape.experts, "num_experts_per_tok": shape.experts_used,
            "moe_intermediate_size": shape.ffn, "norm_topk_prob": True, "decoder_sparse_step": 1,
        }  # fmt: skip
    if kind == "gemma3":
        config |= {
            "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0,
            "query_pre_attn_scalar": shape.head_dim, "sliding_window_pattern": 6,
        }  # fmt: skip
    return config


def tokenizer_json(*, bos: bool = False) -> dict[str, Any]:
    """Returns a tokenizer.json of the small vocabulary, cut into words as smollm does."""
    tokens, merges, _ = small_vocabulary()
    processor = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    start = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}] if bos else []
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for i, token in enumerate(CONTROL_TOKENS)
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, processor]},
        "post_processor": {
            "type": "TemplateProcessing", "single": [*start, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
        },
        "decoder": processor,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)}, "merges": list(merges),
        },
    }  # fmt: skip


def described(**changes: Any) -> str:
    """Returns the text of a tokenizer.json with some parts replaced; a part of a part is named part__part."""
    found: dict[str, Any] = tokenizer_json(bos=True)
    for name, value in changes.items():
        *path, last = name.split("__")
        inside = found
        for step in path:
            inside = inside[step]
        inside[last] = value
    return json.dumps(found)


def tiny_folder(folder: Path, shape: Tiny | None = None, seed: int = 0, shards: int = 1, **config: Any) -> Path:
    """Writes a tiny model as a folder and returns it; keyword arguments replace entries of config.json."""
    shape = shape or Tiny()
    folder.mkdir(parents=True, exist_ok=True)
    tensors = list(tiny_hf_tensors(shape, seed).items())
    names = ["model.safetensors"] if shards == 1 else [f"model-{i}-of-{shards}.safetensors" for i in range(shards)]
    for i, name in enumerate(names):
        (folder / name).write_bytes(safetensors_bytes(dict(tensors[i::shards])))
    if shards > 1:
        weight_map = {name: names[i % shards] for i, (name, _) in enumerate(tensors)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(tiny_config(shape) | config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    named = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder
