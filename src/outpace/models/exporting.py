"""A model file of ours as a folder of `transformers`: config.json, safetensors, tokenizer.json and chat template.

Needs neither PyTorch nor transformers. Weights are written as the values that the file's blocks stand for, rounded to
bfloat16 or kept in float32: then both engines compute with the same numbers.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import Unsupported, UsageError
from outpace.native.architecture import expected_tensors
from outpace.native.dequantise import dequantise
from outpace.native.gguf import open_gguf
from outpace.native.hf_config import hf_name
from outpace.native.weights import ModelConfig, WeightFile
from outpace.tokenizer import TokenModel, token_model_from_gguf
from outpace.tokenizer_json import json_of

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}
_SAFETENSORS_NAMES = {"bfloat16": "BF16", "float32": "F32"}
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_ROWS = 4096
"""Rows that are converted at once."""


def export(source: Path, folder: Path, dtype: str = "bfloat16") -> Path:
    """Returns the folder, written whole or not at all.

    source: a GGUF file. folder: must not exist yet. dtype: "bfloat16" or "float32".
    Raises UsageError (also where nothing can be written), Unsupported for an architecture that has no export, and
    what opening the file raises.
    """
    if dtype not in ELEMENT_BYTES:
        raise UsageError(f"dtype must be one of {', '.join(ELEMENT_BYTES)}, got {dtype!r:.40}")
    if os.path.isdir(source):
        raise UsageError(f"{source} is a folder already: only GGUF files are exported")
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already: name a new folder, or remove it")
    with closing(open_gguf(source)) as file:
        config = file.config
        if config.architecture not in _CLASSES or config.windows or config.experts or config.rope.divisors:
            raise Unsupported(
                f"{source.name}: architecture {config.architecture!r} has no export; plain {', '.join(_CLASSES)} have"
            )
        try:
            _write(folder, file, token_model_from_gguf(file.metadata), dtype)
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror or error}; nothing was kept") from None
    return folder


def _write(folder: Path, file: WeightFile, tokens: TokenModel, dtype: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write_texts(work, file.config, tokens, dtype)
        with open(work / "model.safetensors", "wb") as sink:
            _write_weights(sink, file, dtype)
        os.rename(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    folder.chmod(0o755)  # the temporary folder was private


def _write_texts(work: Path, config: ModelConfig, tokens: TokenModel, dtype: str) -> None:
    eos = sorted(config.eos_ids | tokens.eos_ids)
    end = tokens.names.get("eos_token")
    first = tokens.vocabulary.tokens.index(end) if end in tokens.vocabulary.tokens else next(iter(eos), None)
    start = tokens.names.get("bos_token")
    bos = tokens.vocabulary.tokens.index(start) if start in tokens.vocabulary.tokens else None
    described = {
        "architectures": [_CLASSES[config.architecture]],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rope_theta": config.rope.theta,
        "rms_norm_eps": config.norm_epsilon,
        "hidden_act": "silu",
        "attention_bias": config.attention_bias,
        "tie_word_embeddings": config.tied,
        "bos_token_id": bos,
        "eos_token_id": first,
        "dtype": dtype,
    }
    named = dict(tokens.names) | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, content in (
        ("config.json", described),
        ("generation_config.json", {"bos_token_id": bos, "eos_token_id": eos}),
        ("tokenizer_config.json", named),
        ("tokenizer.json", json_of(tokens)),
    ):
        (work / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    if tokens.template is not None:
        (work / "chat_template.jinja").write_text(tokens.template, encoding="utf-8")


def _write_weights(sink: IO[bytes], file: WeightFile, dtype: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    tensors = expected_tensors(file.config)
    for name, rows, cols in tensors:
        size = rows * cols * ELEMENT_BYTES[dtype]
        shape = [cols] if rows == 1 else [rows, cols]
        header[hf_name(name)] = {
            "dtype": _SAFETENSORS_NAMES[dtype],
            "shape": shape,
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    sink.write(struct.pack("<Q", len(text)) + text)
    for name, _, _ in tensors:
        for values in _rows(file, name):
            sink.write(values.tobytes() if dtype == "float32" else bfloat16(values).tobytes())


def _rows(file: WeightFile, name: str) -> Iterator[NDArray[np.float32]]:
    """Yields the values of a tensor, in the order of rows that transformers has."""
    info, config = file.tensors[name], file.config
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2], 0)
    if heads and config.rope_interleaved:  # head by head, which is small
        yield halves(dequantise(file.read(name, 0, info.rows), info.format, info.rows, info.cols), heads)
        return
    for first in range(0, info.rows, _ROWS):
        count = min(_ROWS, info.rows - first)
        yield dequantise(file.read(name, first, count), info.format, count, info.cols)


def halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Returns the rows of a rotary matrix with pairs (2i, 2i + 1) of each head moved to (i, i + d / 2)."""
    return rows.reshape(heads, len(rows) // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Returns the bits of the nearest bfloat16, ties to even; infinities and NaN as they are."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    special = bits >> 23 & 0xFF == 0xFF
    found: NDArray[np.uint16] = np.where(special, bits >> 16 | (bits & 0x7FFFFF != 0) << 6, rounded).astype(np.uint16)
    return found
