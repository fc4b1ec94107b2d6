"""The file of a head: one safetensors file with its weights, its draft vocabulary, and a card.

Matrices are U8 [rows, bytes] in the blocks of the format that `formats` names, vectors F32, `draft_ids` I32 [D] in
rising order. The target's embeddings and the rows of its output matrix are not in it: the head uses the target's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile, VocabularyMismatch
from outpace.heads import tensorfile
from outpace.heads.config import FEATURE_HEADS, HeadConfig
from outpace.heads.fingerprint import Embedding, fingerprint
from outpace.heads.quantise import quantise
from outpace.native.metadata import brief
from outpace.native.textfile import parse_json

BLOCK_BYTES = {"Q8_0": 34, "Q4_1": 20}
"""Bytes of 32 weights."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """A checked head. matrices: name -> (format, U8 rows). vectors: name -> F32, [rows, hidden_size] where there are
    several. card: how it was made and what it was found to accept."""

    path: Path
    config: HeadConfig
    draft_ids: NDArray[np.int32]
    matrices: Mapping[str, tuple[str, NDArray[np.uint8]]]
    vectors: Mapping[str, NDArray[np.float32]]
    card: Mapping[str, Any]


def matrix_shapes(config: HeadConfig) -> dict[str, tuple[int, int]]:
    """Returns (rows, columns) of each matrix that a head of this config has."""
    h = config.hidden_size
    if config.kind in FEATURE_HEADS:
        inner = config.ffn_size if config.kind == "blockwise" else h
        expand = {"expand": (inner, h)} if config.kind == "blockwise" else {}
        return expand | {f"guess_{step}": (h, inner) for step in range(config.block)}
    return {
        "fuse": (h, len(config.taps) * h),
        "embed": (h, h),
        "state": (h, h),
        "attn_q": (config.query_size, h),
        "attn_k": (config.kv_size, h),
        "attn_v": (config.kv_size, h),
        "attn_output": (h, config.query_size),
        "ffn_gate": (config.ffn_size, h),
        "ffn_up": (config.ffn_size, h),
        "ffn_down": (h, config.ffn_size),
    }


def vector_shapes(config: HeadConfig) -> dict[str, tuple[int, int]]:
    """Returns (rows, columns) of each vector, or vectors."""
    h = config.hidden_size
    shapes = {"tap_norms": (len(config.taps), h), "output_norm": (1, h)}
    if config.kind not in FEATURE_HEADS:
        shapes |= {"mask": (config.block, h), "attn_norm": (1, h), "ffn_norm": (1, h)}
    return shapes


def save_head(
    path: Path,
    config: HeadConfig,
    draft_ids: NDArray[np.integer],
    weights: Mapping[str, NDArray[np.float32]],
    format: str,
    card: Mapping[str, Any],
) -> None:
    """Writes a head; its matrices in `format`."""
    arrays: dict[str, NDArray[Any]] = {"draft_ids": draft_ids.astype(np.int32)}
    for name, shape in vector_shapes(config).items():
        arrays[name] = weights[name].reshape(shape).astype(np.float32)
    for name in matrix_shapes(config):
        arrays[name] = quantise(weights[name], format)
    formats = dict.fromkeys(matrix_shapes(config), format)
    metadata = {"config": config.to_json(), "formats": json.dumps(formats), "card": json.dumps(card, sort_keys=True)}
    tensorfile.write(path, arrays, metadata)


def read_head(path: Path) -> HeadFile:
    """Returns the head of a file. Raises ModelNotFound or BadModelFile when it is not a whole and consistent one."""
    file = tensorfile.read(path)
    label = str(path)
    config = HeadConfig.from_json(file.metadata.get("config", ""), label)
    formats, card = (parse_json(file.metadata.get(name, ""), f"{label}: its {name}") for name in ("formats", "card"))
    vectors = {}
    for name, shape in vector_shapes(config).items():
        vectors[name] = _array(file, name, "<f4", shape)
        if not np.isfinite(vectors[name]).all():
            raise BadModelFile(f"{label}: {name} holds a number that is not finite")
    matrices = {}
    for name, (rows, cols) in matrix_shapes(config).items():
        format = formats.get(name)
        if not isinstance(format, str) or format not in BLOCK_BYTES:
            raise BadModelFile(
                f"{label}: {name} is stored as {brief(format)}; {', '.join(BLOCK_BYTES)} are supported"
            )
        if cols % 32:
            raise BadModelFile(f"{label}: {name} must have a multiple of 32 columns, got {cols}")
        matrices[name] = format, _array(file, name, "|u1", (rows, cols // 32 * BLOCK_BYTES[format]))
    ids = _array(file, "draft_ids", "<i4", (config.draft_vocab,))
    if ids[0] < 0 or ids[-1] >= config.vocab_size or (np.diff(ids) <= 0).any():
        raise BadModelFile(f"{label}: draft_ids must rise within [0, {config.vocab_size}), got {ids[0]} to {ids[-1]}")
    return HeadFile(path, config, ids, matrices, vectors, card)


def _array(file: tensorfile.TensorFile, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    array = file.arrays.get(name)
    if array is None or array.dtype != np.dtype(dtype) or array.shape != shape:
        got = "it is missing" if array is None else f"got {array.dtype} {list(array.shape)}"
        raise BadModelFile(f"{file.path}: {name} must be {np.dtype(dtype)} {list(shape)}, {got}")
    return np.array(array)


def check_target(head: HeadFile, target: Embedding) -> None:
    """Raises VocabularyMismatch, naming what differs, unless the head was made for this target."""
    c = head.config
    hidden = target.embed([0]).shape[1]
    differs = []
    if hidden != c.hidden_size:
        differs.append(f"a hidden size of {c.hidden_size}, not {hidden}")
    if target.vocab_size != c.vocab_size:
        differs.append(f"{c.vocab_size} tokens, not {target.vocab_size}")
    if max(c.taps) >= target.hidden_layers:
        differs.append(f"more than {max(c.taps)} layers, not {target.hidden_layers}")
    if not differs and fingerprint(target) != c.target:
        differs.append("other weights (same shape, another model or quantisation)")
    if differs:
        raise VocabularyMismatch(f"the head {head.path.name} was made for a target with {', '.join(differs)}")
