"""Weights rounded to fewer bits on request, while a model is loaded: of files that hold them in F32, F16 or BF16."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outpace import _native
from outpace.errors import BadModelFile, UsageError
from outpace.native.architecture import expected_tensors
from outpace.native.weights import ModelConfig, TensorInfo, WeightFile

PACKS = ("q4", "q8")
DRAFT_PACK = "q4"
"""Of a target that drafts for itself."""

_DENSE = ("F32", "F16", "BF16")
_BLOCK = 32


def held_formats(file: WeightFile, pack: str | None) -> Mapping[str, str]:
    """Returns the format in which each matrix is held.

    pack: "q8" holds dense matrices in Q8_0, "q4" in Q4_0, except what is read for every token alike and matters most:
    the output matrix in Q8_0; routers, vectors and an embedding that is only looked up stay as they are.
    Raises UsageError for another name, and where there is nothing to pack.
    """
    formats = {name: file.tensors[name].format for name, _, _ in expected_tensors(file.config)}
    if pack is None:
        return formats
    if pack not in PACKS:
        raise UsageError(f"pack must be one of {', '.join(PACKS)}, got {pack!r:.40}")
    packed = {name: _format(file.config, file.tensors[name], pack) for name in formats if _fits(file, name)}
    if not packed:
        found = sorted({file.tensors[name].format for name, rows, _ in expected_tensors(file.config) if rows > 1})
        raise UsageError(f"pack is for weights in {', '.join(_DENSE)}; {file.path.name} holds {', '.join(found)}")
    return formats | packed


def _fits(file: WeightFile, name: str) -> bool:
    info = file.tensors[name]
    looked_up = name == "token_embd.weight" and not file.config.tied
    kept = info.rows == 1 or looked_up or name.endswith("ffn_gate_inp.weight")
    return not kept and info.format in _DENSE and info.cols % _BLOCK == 0


def _format(config: ModelConfig, info: TensorInfo, pack: str) -> str:
    output = info.name == ("token_embd.weight" if config.tied else "output.weight")
    return "Q8_0" if pack == "q8" or output else "Q4_0"


def rounded(file: WeightFile, name: str, rows: NDArray[np.uint8], format: str) -> NDArray[np.uint8]:
    """Returns the bytes of some rows in the format that they are held in. Raises BadModelFile."""
    stored = file.tensors[name].format
    if stored == format:
        return rows
    try:
        return _native.round_weights(rows, stored, format)
    except ValueError as error:
        raise BadModelFile(f"{file.path}: the tensor {name!r} cannot be packed: {error}") from None
