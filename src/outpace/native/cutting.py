"""A model made smaller, to draft for its relative: fewer output rows, fewer bits, fewer layers.

A draft may leave out tokens: its law is one on the tokens that it has, which every lossless rule takes as it is. What
a token costs is bytes, and of a small model with a large vocabulary the output matrix is a third of them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.native.architecture import OUTPUT_IDS, expected_tensors
from outpace.native.dequantise import dequantise
from outpace.native.gguf import GgufFile, open_gguf
from outpace.native.gguf_writing import NewTensor, write_gguf
from outpace.native.quantise import FORMATS, quantise
from outpace.native.weights import TensorInfo

BITS = {4: "IQ4_NL", 8: "Q8_0"}
"""What --bits stands for; tensors that are smaller already stay as they are."""

PLAIN = ("llama", "qwen2")
"""Architectures whose tensors stand in the file as the decoder has them."""

OUTPUT_BITS = 8
"""The output matrix decides between near-equal tokens, and trimmed it is small: it keeps this many bits."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What was written. pass_bytes: that a pass reads of it, and of the model that it was cut from."""

    path: Path
    tokens: int
    layers: int
    nbytes: int
    pass_bytes: int
    source_pass_bytes: int


def cut_down(
    source: Path,
    out: Path,
    *,
    output_ids: Sequence[int],
    bits: int | None = 4,
    layers: Sequence[int] | None = None,
    target: str = "",
    progress: Callable[[float], None] = lambda fraction: None,
) -> Cut:
    """Returns what was written: the GGUF model `source` with output rows for `output_ids` alone, ascending.

    bits: of the layers, 4 or 8; None leaves them as they are. layers: which are kept, all by default. target: name of
    the model that it is to draft for, for the card. Raises UsageError, ModelNotFound, BadModelFile or Unsupported.
    """
    if bits is not None and bits not in BITS:
        raise UsageError(f"bits must be {' or '.join(map(str, BITS))}, got {bits}")
    if os.path.isdir(source):
        raise UsageError(f"{source}: only a GGUF file can be cut down")
    if os.path.exists(out) and out.samefile(source):
        raise UsageError(f"{out} is the model that is cut down: name another file")
    with closing(open_gguf(source)) as file:
        if file.config.architecture not in PLAIN:
            raise UsageError(
                f"{source}: only {' and '.join(PLAIN)} models can be cut down, got {file.config.architecture}"
            )
        ids = _checked_ids(output_ids, file)
        kept = _checked_layers(layers, file.config.layers)
        wanted = None if bits is None else BITS[bits]
        tensors = [
            *_tensors(file, kept, wanted),
            _output(file, ids),
        ]
        prefix = file.config.architecture
        changed: dict[str, int | str | Sequence[int]] = {
            f"{prefix}.block_count": len(kept),
            OUTPUT_IDS: ids.tolist(),
            "outpace.draft.target": target,
            "outpace.draft.source": source.name,
            "outpace.draft.command": shlex.join(["outpace", *sys.argv[1:]]),
        }
        write_gguf(out, file.keys(), changed, tensors, progress)
        read = sum(tensor.nbytes for tensor in tensors if tensor.name != "token_embd.weight")
        before = sum(
            info.nbytes for info in file.tensors.values() if file.config.tied or info.name != "token_embd.weight"
        )
    return Cut(out, len(ids), len(kept), out.stat().st_size, read, before)


def _checked_ids(output_ids: Sequence[int], file: GgufFile) -> NDArray[np.int64]:
    ids = np.unique(np.asarray(output_ids, np.int64))
    if not ids.size or ids[0] < 0 or ids[-1] >= file.config.vocab_size:
        got = f"{ids[0]} to {ids[-1]}" if ids.size else "none"
        raise UsageError(
            f"the tokens that a draft keeps must be some of 0 to {file.config.vocab_size - 1}, got {got}"
        )
    if file.config.output_ids:
        raise UsageError(f"{file.path}: its output was cut already; cut the model that it was made from")
    return ids


def _checked_layers(layers: Sequence[int] | None, count: int) -> list[int]:
    kept = list(range(count)) if layers is None else sorted(set(layers))
    if not kept or kept[0] < 0 or kept[-1] >= count:
        raise UsageError(f"the layers that a draft keeps must be some of 0 to {count - 1}, got {list(layers or ())}")
    return kept


def _tensors(file: GgufFile, layers: Sequence[int], wanted: str | None) -> list[NewTensor]:
    """Returns all tensors but the output matrix; a matrix of more than the wanted bits is quantised."""
    place = {f"blk.{old}.": f"blk.{new}." for new, old in enumerate(layers)}
    found: list[NewTensor] = []
    for name, rows, cols in expected_tensors(file.config):
        info = file.tensors[name]
        if name == "output.weight":
            continue
        if name.startswith("blk."):
            prefix = name[: name.index(".", 4) + 1]
            if prefix not in place:
                continue
            name = place[prefix] + name[len(prefix) :]
        if wanted is None or rows == 1 or name == "token_embd.weight" or _bits(info) <= _bits_of(wanted) + 0.1:
            found.append(NewTensor(name, info.format, rows, cols, partial(file.read, info.name, 0, info.rows)))
        else:
            found.append(NewTensor(name, wanted, rows, cols, partial(_requantised, file, info, wanted)))
    return found


def _output(file: GgufFile, ids: NDArray[np.int64]) -> NewTensor:
    """Returns the chosen rows of the output matrix, at OUTPUT_BITS at most."""
    info = file.tensors["token_embd.weight" if file.config.tied else "output.weight"]
    as_it_is = _bits(info) <= OUTPUT_BITS + 0.5
    format = info.format if as_it_is else BITS[OUTPUT_BITS]

    def data() -> NDArray[np.uint8]:
        rows = file.read(info.name, 0, info.rows).reshape(info.rows, -1)[ids]
        if as_it_is:
            return rows.reshape(-1)
        return quantise(dequantise(rows.reshape(-1), info.format, len(ids), info.cols), format)

    return NewTensor("output.weight", format, len(ids), info.cols, data)


def _requantised(file: GgufFile, info: TensorInfo, format: str) -> NDArray[np.uint8]:
    step = max(1, (1 << 22) // info.cols)
    pieces = []
    for first in range(0, info.rows, step):
        rows = min(step, info.rows - first)
        values = dequantise(file.read(info.name, first, rows), info.format, rows, info.cols)
        pieces.append(quantise(values, format))
    return np.concatenate(pieces)


def _bits(info: TensorInfo) -> float:
    return 8 * info.nbytes / (info.rows * info.cols)


def _bits_of(format: str) -> float:
    block, encode = FORMATS[format]
    return 8 * encode(np.zeros((1, block), np.float32)).size / block
