"""What a decoder is, read from GGUF keys or from a config.json, and the tensors it must have.

Whatever a file states that would change the results and that the engine does not do is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from outpace.errors import BadModelFile, Unsupported
from outpace.native import rope
from outpace.native.architectures import ARCHITECTURES, SUPPORTED, Architecture
from outpace.native.facts import Facts, checked_count, is_off
from outpace.native.metadata import Value, brief, gguf_tokens
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig, Rope, TensorInfo
from outpace.vocabulary import end_of_generation

OUTPUT_IDS = "outpace.draft.output_ids"
"""The key of a draft whose output was cut to some tokens: their ids, ascending."""

_KNOWN_KEYS = rope.KEYS | {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon", "attention.causal", "tensor_data_layout",
}  # fmt: skip


def config_from_gguf(metadata: Mapping[str, Value], files: TensorBytes) -> ModelConfig:
    """Returns the decoder that the keys of a GGUF file describe, its tensors arranged as that needs them.

    Raises BadModelFile or Unsupported.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise BadModelFile("general.architecture is missing, so nothing says what model this is")
    architecture = supported(ARCHITECTURES.get(name), name)
    prefix = name + "."
    values = {key[len(prefix) :]: value for key, value in metadata.items() if key.startswith(prefix)}
    facts = Facts(values, lambda name: prefix + name)
    _refuse_unknown(facts, _KNOWN_KEYS | architecture.keys)
    embedding = embedding_of(files.tensors, "token_embd.weight")
    config = common_config(architecture, facts, files, _eos_ids(metadata, embedding.rows), architecture.interleaved)
    config = replace(config, output_ids=_output_ids(metadata, embedding.rows))
    return rope.take_divisors(facts, files, config)


def _output_ids(metadata: Mapping[str, Value], rows: int) -> tuple[int, ...]:
    ids = metadata.get(OUTPUT_IDS)
    if ids is None:
        return ()
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu" or not ids.size:
        raise BadModelFile(f"{OUTPUT_IDS} must be an array of token ids, got {brief(ids)}")
    listed: list[int] = ids.tolist()
    if listed[0] < 0 or listed[-1] >= rows or any(b <= a for a, b in pairwise(listed)):
        raise BadModelFile(f"{OUTPUT_IDS} must be ascending ids in [0, {rows}), got {listed[0]} to {listed[-1]}")
    return tuple(listed)


def supported(architecture: Architecture | None, name: str) -> Architecture:
    """Returns the architecture. Raises Unsupported, naming those there are, when there is none of that name."""
    if architecture is None:
        raise Unsupported(f"architecture {name[:40]!r} is not supported; {SUPPORTED} are")
    return architecture


def embedding_of(tensors: Mapping[str, TensorInfo], theirs: str) -> TensorInfo:
    """Returns the embedding. Raises BadModelFile, naming it as the file would, when it is missing."""
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise BadModelFile(f"the tensor {theirs!r} is missing")
    return embedding


def common_config(
    architecture: Architecture, facts: Facts, files: TensorBytes, eos_ids: frozenset[int], interleaved: bool
) -> ModelConfig:
    """Returns the decoder that the facts describe, and arranges the tensors as it needs them."""
    hidden = facts.integer("embedding_length", "hidden_size")
    heads = facts.integer("attention.head_count", "heads")
    head_dim = facts.integer("attention.key_length", "head_dim", default=max(1, hidden // heads))
    for name in ("attention.value_length", "rope.dimension_count"):
        size = facts.integer(name, "head_dim", default=head_dim)
        if size != head_dim:
            raise Unsupported(f"{facts.label(name)} is {size}, only the head size {head_dim} is supported")
    rows = files.tensors["token_embd.weight"].rows
    config = ModelConfig(
        architecture=architecture.name,
        layers=facts.integer("block_count", "layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=facts.integer("attention.head_count_kv", "kv_heads", default=heads),
        head_dim=head_dim,
        ffn_size=facts.integer("feed_forward_length", "ffn_size"),
        vocab_size=checked_count(rows, "the number of rows of the embedding", "vocab_size"),
        context_length=facts.integer("context_length", "context_length"),
        rope=Rope(),
        rope_interleaved=interleaved,
        norm_epsilon=facts.number("attention.layer_norm_rms_epsilon"),
        attention_bias="blk.0.attn_q.bias" in files.tensors,
        tied="output.weight" not in files.tensors,
        eos_ids=eos_ids,
    )
    config = architecture.configure(facts, rope.with_rope(facts, config))
    architecture.arrange(files, config)
    return config


def _refuse_unknown(facts: Facts, known: frozenset[str]) -> None:
    """Refuses what would change the results: any key that we do not know, unless it asks for nothing."""
    if facts.get("attention.causal") is False:
        raise Unsupported("attention without a causal mask is not supported: this is an encoder")
    layout = facts.text("tensor_data_layout")
    if layout not in (None, "reference", "Meta AI original pth"):
        raise Unsupported(f"the tensor data layout {brief(layout)} is not supported; 'reference' is")
    for name, value in facts.values.items():
        if name not in known and not is_off(value):
            raise Unsupported(
                f"the file asks for {facts.label(name)[:80]!r} = {brief(value)}, which is not supported"
            )


def _eos_ids(metadata: Mapping[str, Value], rows: int) -> frozenset[int]:
    """Returns the ids that end a generation: the keys that say so, and control tokens known for it by name."""
    ids: set[int] = set()
    for name in ("eos", "eot", "eom"):
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is not None:
            if type(value) is not int or not 0 <= value < rows:
                raise BadModelFile(f"tokenizer.ggml.{name}_token_id must be in [0, {rows}), got {brief(value)}")
            ids.add(value)
    found = gguf_tokens(metadata)
    if found is None:
        return frozenset(ids)
    tokens, kinds = found
    if len(tokens) > rows:
        raise BadModelFile(f"tokenizer.ggml.tokens has {len(tokens)} tokens, token_embd.weight {rows} rows")
    return frozenset(ids | end_of_generation(tokens.strings(), kinds))


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> None:
    """Refuses a file whose tensors are not exactly those of the decoder that its keys describe.

    Raises BadModelFile for a missing tensor or a wrong shape, Unsupported for one that the engine would ignore.
    """
    if config.heads % config.kv_heads:
        raise BadModelFile(f"{config.heads} heads cannot share {config.kv_heads} key-value heads evenly")
    if config.tied and config.output_ids:
        raise BadModelFile(f"{OUTPUT_IDS} needs an output matrix of its own, output.weight is missing")
    if config.head_dim % 2:
        raise BadModelFile(f"the head size must be even for rotary positions, got {config.head_dim}")
    if not 0 < np.float32(min(config.norm_epsilon, 1)) < 1:  # as the engine has it, 1e-60 is 0
        raise BadModelFile(
            f"the epsilon of the norms must be under 1, and above 0 in 32 bits, got {config.norm_epsilon}"
        )
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
        raise Unsupported(f"the tensor {extra[:80]!r} is not part of a supported {config.architecture} decoder")


def expected_tensors(config: ModelConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, cols) of every tensor of the decoder, under GGUF's names."""
    hidden, ffn = config.hidden_size, config.ffn_size
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    in_layer = [("attn_norm.weight", 1, hidden), ("ffn_norm.weight", 1, hidden)]
    in_layer += [("attn_q.weight", query, hidden), ("attn_k.weight", key, hidden), ("attn_v.weight", key, hidden)]
    in_layer.append(("attn_output.weight", hidden, query))
    if config.attention_bias:
        in_layer += [("attn_q.bias", 1, query), ("attn_k.bias", 1, key), ("attn_v.bias", 1, key)]
    if config.query_key_norms:
        in_layer += [("attn_q_norm.weight", 1, config.head_dim), ("attn_k_norm.weight", 1, config.head_dim)]
    if config.post_norms:
        in_layer += [("post_attention_norm.weight", 1, hidden), ("post_ffw_norm.weight", 1, hidden)]
    suffix, count = ("_exps.weight", config.experts) if config.experts else (".weight", 1)
    if config.experts:
        in_layer.append(("ffn_gate_inp.weight", count, hidden))
    in_layer += [(f"ffn_{name}{suffix}", count * ffn, hidden) for name in ("gate", "up")]
    in_layer.append((f"ffn_down{suffix}", count * hidden, ffn))
    tensors = [("token_embd.weight", config.vocab_size, hidden), ("output_norm.weight", 1, hidden)]
    if not config.tied:
        tensors.append(("output.weight", config.output_size, hidden))
    for layer in range(config.layers):
        tensors += [(f"blk.{layer}.{name}", rows, cols) for name, rows, cols in in_layer]
    return tensors
