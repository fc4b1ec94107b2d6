"""Writes tiny GGUF models: random weights of every supported format, and a small byte-level BPE vocabulary.

`tiny_model(path)` is what most tests want; `write_gguf` takes keys and tensors as they are, so that a test can also
write what a reader must refuse.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

SCALAR_TYPES = {
    "u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8, "arr": 9,
    "u64": 10, "i64": 11, "f64": 12,
}  # fmt: skip
_PACK = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "?",
         "u64": "Q", "i64": "q", "f64": "d"}  # fmt: skip

# name: (type id, weights of a block, bytes of a block)
FORMATS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210),
    "Q5_K": (13, 256, 176), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q5_1": (7, 32, 24),
    "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "IQ3_S": (21, 256, 110),
}  # fmt: skip


SUPPORTED = tuple(name for name in FORMATS if name != "IQ3_S")


NO_MAMBA = "architecture 'mamba' is not supported; llama, mistral, mixtral, qwen2, qwen3, qwen3moe, gemma3, phi3 are"
"""What is said of a family that is not supported."""


@dataclass(frozen=True)
class Typed:
    """A value under an explicit GGUF type: Typed("u32", 7), Typed("arr", ("str", ["a", "b"]))."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Tensor:
    """A tensor's bytes; `shape` in GGUF's order (columns first). offset: None = right after the one before."""

    shape: tuple[int, ...]
    format: str
    data: bytes
    offset: int | None = None


def typed(value: Any) -> Typed:
    """Returns the value with the type that files usually give it."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed("bool", value)
    if isinstance(value, int):
        return Typed("u32", value)
    if isinstance(value, float):
        return Typed("f32", value)
    if isinstance(value, str):
        return Typed("str", value)
    element = "str" if value and isinstance(value[0], str) else "i32"
    return Typed("arr", (element, list(value)))


def pack_string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pack_value(kind: str, value: Any) -> bytes:
    if kind == "str":
        return pack_string(value)
    if kind == "arr":
        element, values = value
        head = struct.pack("<IQ", SCALAR_TYPES[element], len(values))
        return head + b"".join(pack_value(element, v) for v in values)
    return struct.pack("<" + _PACK[kind], value)


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], *, version: int = 3, alignment: int = 32
) -> bytes:
    """Returns a whole file."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        item = typed(value)
        out += pack_string(key) + struct.pack("<I", SCALAR_TYPES[item.kind]) + pack_value(item.kind, item.value)
    offset, data = 0, bytearray()
    for name, tensor in tensors.items():
        at = offset if tensor.offset is None else tensor.offset
        out += pack_string(name) + struct.pack("<I", len(tensor.shape))
        out += struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape, FORMATS[tensor.format][0], at)
        data += tensor.data + bytes(-len(tensor.data) % alignment)
        offset = len(data)
    out += bytes(-len(out) % alignment)
    return bytes(out + data)


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], **options: Any) -> Path:
    """Writes a file and returns its path."""
    path.write_bytes(gguf_bytes(metadata, tensors, **options))
    return path


def random_tensor(rng: np.random.Generator, format: str, rows: int, cols: int, scale: float = 0.3) -> Tensor:
    """Returns a matrix [rows, cols] (a vector for 1 row) whose values are about `scale` in size, in any format."""
    _, block, nbytes = FORMATS[format]
    shape = (cols,) if rows == 1 else (cols, rows)
    if block == 1:
        values = rng.normal(0, scale, rows * cols).astype(np.float32)
        if format == "BF16":
            return Tensor(shape, format, (values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
        return Tensor(shape, format, values.astype(np.float16 if format == "F16" else np.float32).tobytes())
    if cols % block:
        raise ValueError(f"{format} needs a multiple of {block} columns, got {cols}")
    blocks = rng.integers(0, 256, (rows * cols // block, nbytes), dtype=np.uint8)
    for at, value in _block_scales(format, scale).items():
        halves = (value * rng.uniform(0.5, 1, len(blocks))).astype(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    if format == "Q6_K":  # its signed scales of 16 weights, kept from growing the values beyond `scale`
        blocks[:, 192:208] = rng.integers(-32, 32, (len(blocks), 16)).astype(np.int8).view(np.uint8)
    return Tensor(shape, format, blocks.tobytes())


def _block_scales(format: str, scale: float) -> dict[int, float]:
    """Returns byte offset -> size of each f16 in a block, so that values are about `scale`."""
    return {
        "Q4_0": {0: scale / 8}, "Q4_1": {0: scale / 8, 2: -scale}, "Q5_0": {0: scale / 16}, "Q8_0": {0: scale / 127},
        "Q4_K": {0: scale / 256, 2: scale / 40}, "Q6_K": {208: scale / 640}, "Q5_K": {0: scale / 512, 2: scale / 40},
        "Q2_K": {80: scale / 24, 82: scale / 12}, "Q3_K": {108: scale / 64}, "Q5_1": {0: scale / 16, 2: -scale},
        "IQ4_NL": {0: scale / 128}, "IQ4_XS": {0: scale / 2048}, "IQ3_S": {0: scale},
    }[format]  # fmt: skip


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CORPUS = (
    "the cat sat on the mat and the dog sat on the log while the cat and the dog sang the song of the sea "
    "for i in range(10): print(i) def main(): return the number of words in the text that the reader reads"
)


def byte_alphabet() -> list[str]:
    """Returns the printable character that stands for each byte in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


@cache
def small_vocabulary(merges: int = 61) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """Returns (tokens, merges, kinds): 3 control tokens, 256 bytes, and the most frequent pairs of a short text."""
    alphabet = byte_alphabet()
    words = [[alphabet[b] for b in w.encode()] for w in (" " + _CORPUS).replace(" ", "\0 ").split("\0") if w]
    tokens, rules = [*CONTROL_TOKENS, *alphabet], []
    for _ in range(merges):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        (a, b), _count = max(pairs.items(), key=lambda item: (item[1], item[0]))
        rules.append(f"{a} {b}")
        tokens.append(a + b)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (a, b):
                    word[i : i + 2] = [a + b]
                i += 1
    return tuple(tokens), tuple(rules), (3,) * len(CONTROL_TOKENS) + (1,) * (len(tokens) - len(CONTROL_TOKENS))


def tokenizer_metadata(pre: str = "smollm", padded_to: int = 0) -> dict[str, Any]:
    """Returns the tokenizer's keys: 320 tokens, then unused ones up to `padded_to`."""
    tokens, merges, kinds = small_vocabulary()
    padding = range(len(tokens), padded_to)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{i}]" for i in padding)],
        "tokenizer.ggml.token_type": [*kinds, *(5 for _ in padding)],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


@dataclass(frozen=True)
class Tiny:
    """The shape of a tiny model. formats: the format of each layer's matrices, repeated as needed; head_dim 0:
    hidden / heads; window: of the layers that the architecture gives one."""

    architecture: str = "llama"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 96
    vocab_size: int = 320
    context: int = 512
    rope_theta: float = 10000.0
    epsilon: float = 1e-5
    tied: bool = True
    formats: Sequence[str] = ("F32",)
    embedding: str = "F32"
    head_dim: int = 0
    window: int = 0
    experts: int = 0
    experts_used: int = 2

    @property
    def bias(self) -> bool:
        return self.architecture == "qwen2"

    @property
    def query_key_norms(self) -> bool:
        return self.architecture in ("qwen3", "qwen3moe", "gemma3")

    @property
    def post_norms(self) -> bool:
        return self.architecture == "gemma3"

    @property
    def fused(self) -> bool:
        return self.architecture == "phi3"

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden // self.heads


ARCHITECTURES: Mapping[str, Tiny] = {
    "llama": Tiny(),
    "mistral": Tiny(window=24, tied=False),
    "mixtral": Tiny(experts=4, tied=False),
    "qwen2": Tiny("qwen2"),
    "qwen3": Tiny("qwen3", head_dim=32),
    "qwen3moe": Tiny("qwen3moe", head_dim=32, experts=6, experts_used=3, tied=False),
    "gemma3": Tiny("gemma3", layers=7, head_dim=32, window=24, rope_theta=1e6, heads=4, kv_heads=1),
    "phi3": Tiny("phi3", tied=False),
}
"""A tiny model of every supported family."""


def tiny_metadata(shape: Tiny) -> dict[str, Any]:
    """Returns every key of a tiny model, tokenizer included."""
    a = shape.architecture
    keys = {
        "general.architecture": a,
        "general.name": f"tiny {a}",
        f"{a}.block_count": shape.layers,
        f"{a}.context_length": shape.context,
        f"{a}.embedding_length": shape.hidden,
        f"{a}.feed_forward_length": shape.ffn,
        f"{a}.attention.head_count": shape.heads,
        f"{a}.attention.head_count_kv": shape.kv_heads,
        f"{a}.rope.freq_base": shape.rope_theta,
        f"{a}.attention.layer_norm_rms_epsilon": shape.epsilon,
    }
    if shape.head_dim:
        keys |= {f"{a}.attention.key_length": shape.head_dim, f"{a}.attention.value_length": shape.head_dim}
    if shape.window:
        keys[f"{a}.attention.sliding_window"] = shape.window
    if shape.experts:
        keys |= {f"{a}.expert_count": shape.experts, f"{a}.expert_used_count": shape.experts_used}
    return keys | tokenizer_metadata("qwen2" if a == "qwen2" else "smollm", shape.vocab_size)


def _matrices(shape: Tiny) -> dict[str, tuple[int, ...]]:
    """Returns name -> (rows, cols), or (rows, cols, experts), of the matrices of a layer."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    up, down = (shape.ffn, shape.hidden), (shape.hidden, shape.ffn)
    attention = {"attn_q": (query, shape.hidden), "attn_k": (key, shape.hidden), "attn_v": (key, shape.hidden)}
    if shape.fused:
        attention = {"attn_qkv": (query + 2 * key, shape.hidden)}
    attention["attn_output"] = (shape.hidden, query)
    if shape.experts:
        many = {
            f"ffn_{name}_exps": (*size, shape.experts) for name, size in (("gate", up), ("up", up), ("down", down))
        }
        return {**attention, "ffn_gate_inp": (shape.experts, shape.hidden), **many}
    if shape.fused:
        return {**attention, "ffn_up": (2 * shape.ffn, shape.hidden), "ffn_down": down}
    return {**attention, "ffn_gate": up, "ffn_up": up, "ffn_down": down}


def tiny_tensors(shape: Tiny, seed: int = 0) -> dict[str, Tensor]:
    """Returns every tensor of a tiny model, drawn from `seed`."""
    rng = np.random.default_rng(seed)

    def vector(size: int, mean: float) -> Tensor:
        return Tensor((size,), "F32", rng.normal(mean, 0.1, size).astype(np.float32).tobytes())

    norms = {"attn_norm": shape.hidden, "ffn_norm": shape.hidden}
    if shape.query_key_norms:
        norms |= {"attn_q_norm": shape.head_size, "attn_k_norm": shape.head_size}
    if shape.post_norms:
        norms |= {"post_attention_norm": shape.hidden, "post_ffw_norm": shape.hidden}
    out = {"token_embd.weight": random_tensor(rng, shape.embedding, shape.vocab_size, shape.hidden)}
    count = 0
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        for name, size in norms.items():
            out[f"{at}{name}.weight"] = vector(size, 1)
        for name, (rows, cols, *experts) in _matrices(shape).items():
            format = "F32" if name == "ffn_gate_inp" else shape.formats[count % len(shape.formats)]
            tensor = random_tensor(rng, format, rows * math.prod(experts), cols, 1.5 / cols**0.5)
            out[f"{at}{name}.weight"] = replace(tensor, shape=(cols, rows, *experts))
            count += 1
            if shape.bias and name in ("attn_q", "attn_k", "attn_v"):
                out[f"{at}{name}.bias"] = vector(rows, 0)
    out["output_norm.weight"] = vector(shape.hidden, 1)
    if not shape.tied:
        out["output.weight"] = random_tensor(rng, shape.embedding, shape.vocab_size, shape.hidden)
    return out


def tiny_model(path: Path, shape: Tiny | None = None, seed: int = 0, **changes: Any) -> Path:
    """Writes a tiny model with random weights and returns its path; keyword arguments replace keys of the file."""
    shape = shape or Tiny()
    metadata = tiny_metadata(shape)
    for key, value in changes.items():
        metadata[key] = value
    return write_gguf(path, metadata, tiny_tensors(shape, seed))
