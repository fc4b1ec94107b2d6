"""What a Llama-family decoder is, read from GGUF keys or from a config.json, and the tensors it must have.

Whatever a file states that would change the results and that the engine does not do is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from outpace.errors import BadModelFile, Unsupported
from outpace.native.metadata import StringArray, Value
from outpace.native.weights import ModelConfig, TensorInfo
from outpace.vocabulary import end_of_generation

ARCHITECTURES: Mapping[str, bool] = {"llama": True, "qwen2": False}
"""Name -> rotary pairs are (2i, 2i + 1) in a GGUF file of it."""

_LIMITS: Mapping[str, int] = {
    "layers": 1 << 10, "hidden_size": 1 << 17, "heads": 1 << 10, "kv_heads": 1 << 10, "head_dim": 1 << 10,
    "ffn_size": 1 << 20, "vocab_size": 1 << 22, "context_length": 1 << 26,
}  # fmt: skip

_KNOWN_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scale_linear", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon", "attention.causal", "attention.sliding_window", "tensor_data_layout",
}  # fmt: skip


class _Keys:
    """The keys of one architecture, read with their types and ranges checked."""

    def __init__(self, metadata: Mapping[str, Value], architecture: str) -> None:
        self.metadata = metadata
        self.prefix = architecture + "."

    def get(self, name: str) -> Value | None:
        return self.metadata.get(self.prefix + name)

    def integer(self, name: str, field: str, default: int | None = None) -> int:
        """Returns a count in [1, the limit of `field`]; a list of equal counts, one a layer, is that count."""
        value = self.get(name)
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise Unsupported(f"{self.prefix}{name} differs from layer to layer, which is not supported")
            value = int(value[0])
        if value is None and default is not None:
            value = default
        return checked_count(value, self.prefix + name, field)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name)
        return checked_positive(default if value is None else value, self.prefix + name)


def checked_count(value: object, name: str, field: str) -> int:
    if type(value) is not int or not 1 <= value <= _LIMITS[field]:
        raise BadModelFile(f"{name} must be an integer in [1, {_LIMITS[field]}], got {brief(value)}")
    return value


def checked_positive(value: object, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type,operator]
        raise BadModelFile(f"{name} must be a positive number, got {brief(value)}")
    return float(value)  # type: ignore[arg-type]


def brief(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]


def _is_off(value: Value) -> bool:
    return isinstance(value, (bool, int, float, str)) and value in (0, "", "none")


def config_from_gguf(metadata: Mapping[str, Value], tensors: Mapping[str, TensorInfo]) -> ModelConfig:
    """Returns the decoder that the keys of a GGUF file describe. Raises BadModelFile or Unsupported."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise BadModelFile("general.architecture is missing, so nothing says what model this is")
    if architecture not in ARCHITECTURES:
        raise Unsupported(f"architecture {architecture[:40]!r} is not supported; {', '.join(ARCHITECTURES)} are")
    keys = _Keys(metadata, architecture)
    _refuse_unknown(keys)
    hidden = keys.integer("embedding_length", "hidden_size")
    heads = keys.integer("attention.head_count", "heads")
    head_dim = keys.integer("attention.key_length", "head_dim", default=max(1, hidden // heads))
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(name, "head_dim", default=head_dim) != head_dim:
            raise Unsupported(f"{keys.prefix}{name} is {keys.get(name)}, only the head size {head_dim} is supported")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise BadModelFile("the tensor 'token_embd.weight' is missing")
    return ModelConfig(
        architecture=architecture,
        layers=keys.integer("block_count", "layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", "kv_heads", default=heads),
        head_dim=head_dim,
        ffn_size=keys.integer("feed_forward_length", "ffn_size"),
        vocab_size=checked_count(embedding.rows, "the number of rows of token_embd.weight", "vocab_size"),
        context_length=keys.integer("context_length", "context_length"),
        rope_theta=keys.number("rope.freq_base", 10000.0),
        rope_interleaved=ARCHITECTURES[architecture],
        norm_epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        attention_bias="blk.0.attn_q.bias" in tensors,
        tied="output.weight" not in tensors,
        eos_ids=_eos_ids(metadata, embedding.rows),
    )


def _refuse_unknown(keys: _Keys) -> None:
    """Refuses what would change the results: scaled rotations, windows, experts, and any key that we do not know."""
    scaling = keys.get("rope.scaling.type")
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0
    if (scaling is not None and not _is_off(scaling)) or factor != 1.0:
        raise Unsupported(f"scaled rotary positions ({brief(scaling)}, factor {brief(factor)}) are not supported")
    window = keys.get("attention.sliding_window")
    context = keys.get("context_length")
    covers = type(window) is int and type(context) is int and window >= context
    if window is not None and not _is_off(window) and not covers:
        raise Unsupported(f"sliding-window attention (over {brief(window)} tokens) is not supported")
    if keys.get("attention.causal") is False:
        raise Unsupported("attention without a causal mask is not supported: this is an encoder")
    layout = keys.get("tensor_data_layout")
    if layout not in (None, "reference", "Meta AI original pth"):
        raise Unsupported(f"the tensor data layout {brief(layout)} is not supported; 'reference' is")
    for key, value in keys.metadata.items():
        if key.startswith(keys.prefix) and key[len(keys.prefix) :] not in _KNOWN_KEYS and not _is_off(value):
            raise Unsupported(f"the file asks for {key[:80]!r} = {brief(value)}, which is not supported")


def _eos_ids(metadata: Mapping[str, Value], rows: int) -> frozenset[int]:
    """Returns the ids that end a generation: the keys that say so, and control tokens known for it by name."""
    ids: set[int] = set()
    for name in ("eos", "eot", "eom"):
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is not None:
            if type(value) is not int or not 0 <= value < rows:
                raise BadModelFile(f"tokenizer.ggml.{name}_token_id must be in [0, {rows}), got {brief(value)}")
            ids.add(value)
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if tokens is None:
        return frozenset(ids)
    if not isinstance(tokens, StringArray):
        raise BadModelFile("tokenizer.ggml.tokens is not an array of strings")
    if len(tokens) > rows:
        raise BadModelFile(f"tokenizer.ggml.tokens has {len(tokens)} tokens, token_embd.weight {rows} rows")
    if isinstance(kinds, np.ndarray) and kinds.dtype.kind in "iu" and kinds.size == len(tokens):
        ids |= end_of_generation(tokens.strings(), kinds)
    elif kinds is not None:
        raise BadModelFile(f"tokenizer.ggml.token_type must be {len(tokens)} integers, one a token")
    return frozenset(ids)


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> None:
    """Refuses a file whose tensors are not exactly those of the decoder that its keys describe.

    Raises BadModelFile for a missing tensor or a wrong shape, Unsupported for one that the engine would ignore.
    """
    if config.heads % config.kv_heads:
        raise BadModelFile(f"{config.heads} heads cannot share {config.kv_heads} key-value heads evenly")
    if config.head_dim % 2:
        raise BadModelFile(f"the head size must be even for rotary positions, got {config.head_dim}")
    if not config.norm_epsilon < 1:
        raise BadModelFile(f"the epsilon of the norms must be under 1, got {config.norm_epsilon}")
    expected = 0
    for name, rows, cols in expected_tensors(config):
        info = tensors.get(name)
        if info is None:
            raise BadModelFile(f"the tensor {name!r} is missing")
        if (info.rows, info.cols) != (rows, cols):
            raise BadModelFile(f"the tensor {name!r} is {info.rows} x {info.cols}, the model needs {rows} x {cols}")
        if rows == 1 and info.format not in ("F32", "F16", "BF16"):
            raise Unsupported(f"the vector {name!r} is stored as {info.format}; F32, F16 and BF16 are supported")
        expected += 1
    if len(tensors) > expected:
        known = {name for name, _, _ in expected_tensors(config)}
        extra = next(name for name in tensors if name not in known)
        why = ": scaled rotary positions" if extra.startswith("rope_freqs") else ""
        raise Unsupported(f"the tensor {extra[:80]!r} is not part of a supported {config.architecture} decoder{why}")


def expected_tensors(config: ModelConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, cols) of every tensor of the decoder, under GGUF's names."""
    hidden, ffn = config.hidden_size, config.ffn_size
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    tensors = [("token_embd.weight", config.vocab_size, hidden), ("output_norm.weight", 1, hidden)]
    if not config.tied:
        tensors.append(("output.weight", config.vocab_size, hidden))
    for layer in range(config.layers):
        at = f"blk.{layer}."
        tensors += [
            (at + "attn_norm.weight", 1, hidden),
            (at + "attn_q.weight", query, hidden),
            (at + "attn_k.weight", key, hidden),
            (at + "attn_v.weight", key, hidden),
            (at + "attn_output.weight", hidden, query),
            (at + "ffn_norm.weight", 1, hidden),
            (at + "ffn_gate.weight", ffn, hidden),
            (at + "ffn_up.weight", ffn, hidden),
            (at + "ffn_down.weight", hidden, ffn),
        ]
        if config.attention_bias:
            tensors += [(at + "attn_q.bias", 1, query), (at + "attn_k.bias", 1, key), (at + "attn_v.bias", 1, key)]
    return tensors
