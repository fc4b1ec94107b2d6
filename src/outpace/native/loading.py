"""From a model file to a model in memory: checked against the machine first, then packed chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace import _native
from outpace.errors import BadModelFile, TooLarge, Unsupported, UsageError
from outpace.native.architecture import expected_tensors
from outpace.native.architectures import ARCHITECTURES, SUPPORTED
from outpace.native.gguf import open_gguf
from outpace.native.machine import available_memory, checked_threads, usable_cores
from outpace.native.packing import DRAFT_PACK, held_formats, rounded
from outpace.native.safetensors import open_safetensors
from outpace.native.weights import ModelConfig, TensorInfo, WeightFile
from outpace.targets.native import NativeTarget, Reductions

DEFAULT_CONTEXT = 8192
"""Positions of a context when nobody asks for another number and the model was trained for at least as many."""

MAX_HEAD_DIM = 512
_CHUNK_BYTES = 1 << 19  # of the file, held beside the packed matrix by each packing thread
_BLOCK_ROWS = 128  # rows that a forward pass takes at once
_VECTORS: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}

Packed: TypeAlias = _native.Matrix | _native.FileRows


def load_native(
    source: WeightFile | Path | str,
    *,
    threads: int | None = None,
    context: int | None = None,
    kernel: str | None = None,
    pack: str | None = None,
    exit_layer: int | None = None,
) -> NativeTarget:
    """Returns the model of a file, packed and ready.

    source: a GGUF file, a folder with safetensors and config.json, or an opened file, which stays open. threads: of
    every pass, by default one a core. context: positions that a session may hold, by default those that the model was
    trained for, at most 8,192. kernel: one of `outpace doctor`'s instruction sets, by default the best. pack: "q4" or
    "q8" rounds weights in F32, F16 or BF16 to 4.5 or 8.5 bits; the name of the target says so. exit_layer: after how
    many layers an early exit is, in [1, layers - 1], by default a quarter of them.

    Raises ModelNotFound, BadModelFile, Unsupported, TooLarge (before anything is read, with the figures), UsageError.
    """
    wanted = Wanted(threads, context, kernel, pack, exit_layer)
    if isinstance(source, (str, Path)):
        with closing(open_weights(Path(source))) as file:
            return _load(file, wanted)
    return _load(source, wanted)


def open_weights(path: Path) -> WeightFile:
    """Returns the opened and checked GGUF file or safetensors folder."""
    return open_safetensors(path) if os.path.isdir(path) else open_gguf(path)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a file is to be loaded, as `load_native` takes it."""

    threads: int | None
    context: int | None
    kernel: str | None
    pack: str | None
    exit_layer: int | None


def _load(file: WeightFile, wanted: Wanted) -> NativeTarget:
    config, pack = file.config, wanted.pack
    threads = usable_cores() if wanted.threads is None else checked_threads(wanted.threads)
    context = chosen_context(config, wanted.context)
    if wanted.exit_layer is not None and not 1 <= wanted.exit_layer < config.layers:
        raise UsageError(
            f"exit_layer must be in [1, {config.layers - 1}] of {config.layers} layers, got {wanted.exit_layer}"
        )
    check_supported(file)
    formats = held_formats(file, pack)
    check_memory(file, context, formats)
    try:
        _native.chosen_kernel(wanted.kernel or "")
    except ValueError as error:
        raise UsageError(str(error)) from None
    tensors, embedding = _pack(file, threads, formats)
    try:
        model = _native.Model(config, tensors, embedding, context, threads, wanted.kernel or "")
    except ValueError as error:  # a number of the file that no decoder has
        raise BadModelFile(f"{file.path}: {error}") from None
    path = file.path  # the file itself, with its tokens, is not to be kept
    name = f"{path.stem} packed to {pack}" if pack else path.stem

    def first_layers(layers: int) -> NativeTarget:
        part = replace(config, layers=layers, windows=config.windows[:layers])
        shared = _native.Model(part, tensors, embedding, context, threads, wanted.kernel or "")
        return NativeTarget(shared, part, name=f"{name}, first {layers} of {config.layers} layers")

    def packed() -> NativeTarget:
        if pack == DRAFT_PACK:
            raise UsageError(f"{name} has its weights at {DRAFT_PACK} already: nothing is left to round")
        return load_native(path, **asdict(replace(wanted, pack=DRAFT_PACK)))

    return NativeTarget(
        model, config, name=name, exit_layer=wanted.exit_layer, reductions=Reductions(first_layers, packed)
    )


def chosen_context(config: ModelConfig, context: int | None) -> int:
    """Returns the positions of a context. Raises UsageError outside [1, what the model was trained for]."""
    if context is None:
        return min(config.context_length, DEFAULT_CONTEXT)
    if not 1 <= context <= config.context_length:
        raise UsageError(
            f"context must be in [1, {config.context_length}], what the model was made for, got {context}"
        )
    return context


def check_supported(file: WeightFile) -> None:
    """Raises Unsupported for what the engine cannot run, naming it, what is supported, and what would work."""
    config, formats = file.config, _native.formats()
    if config.architecture not in ARCHITECTURES:
        raise Unsupported(f"{file.path}: architecture {config.architecture!r} is not supported; {SUPPORTED} are")
    if config.head_dim % 16 or config.head_dim > MAX_HEAD_DIM:
        raise Unsupported(
            f"{file.path}: the head size must be a multiple of 16 up to {MAX_HEAD_DIM}, got {config.head_dim}"
        )
    for name, rows, cols in expected_tensors(config):
        info = file.tensors[name]
        if info.format not in formats:
            raise Unsupported(
                f"{file.path}: the tensor {name!r} is stored as {info.format}; {', '.join(formats)} are supported: "
                "a Q4_K_M, Q4_0 or Q8_0 file of the model would work"
            )
        block = formats[info.format][0]
        if cols % block:
            raise Unsupported(
                f"{file.path}: the tensor {name!r} has {cols} columns, {info.format} needs a multiple of {block}"
            )
        if rows == 1 and info.format not in _VECTORS:
            raise Unsupported(f"{file.path}: the vector {name!r} is stored as {info.format}; F32 would work")


def memory_needed(file: WeightFile, context: int, formats: Mapping[str, str] | None = None) -> dict[str, int]:
    """Returns the bytes of weights, of a full context's keys and values, and of working memory.

    formats: in which matrices are held, by default those of the file.
    """
    formats = held_formats(file, None) if formats is None else formats
    config = file.config
    weights = 0
    for name, _, _ in expected_tensors(config):
        info = file.tensors[name]
        looked_up = name == "token_embd.weight" and not config.tied
        weights += info.nbytes if looked_up else _native.packed_bytes(formats[name], info.rows, info.cols)
    pages = -(-context // _native.page_positions)
    cache = pages * _native.page_positions * config.layers * 2 * config.kv_heads * config.head_dim * 2
    return {"weights": weights, "cache": cache, "scratch": scratch_bytes(config)}


def scratch_bytes(config: ModelConfig) -> int:
    """Returns the bytes that a pass works in, and 16 rows of logits."""
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    floats = 2 * config.hidden_size + query + 2 * key + config.ffn_size
    floats += config.experts_used * (2 * config.ffn_size + config.hidden_size)
    activations = config.hidden_size + query + config.ffn_size
    return _BLOCK_ROWS * (4 * floats + 7 * activations) + 16 * 4 * config.vocab_size


def check_memory(file: WeightFile, context: int, formats: Mapping[str, str] | None = None) -> None:
    """Raises TooLarge when the model and a full context would not fit in the memory that is available."""
    available = available_memory()
    needed = memory_needed(file, context, formats)
    total = sum(needed.values())
    if available is not None and total > available:
        parts = ", ".join(f"{size / 1e6:,.0f} MB {what}" for what, size in needed.items())
        raise TooLarge(
            f"{file.path.name} needs {total / 1e6:,.0f} MB ({parts}) with a context of {context}, "
            f"{available / 1e6:,.0f} MB are available; a smaller context or a smaller quantisation may fit"
        )


def _pack(
    file: WeightFile, threads: int, formats: Mapping[str, str]
) -> tuple[dict[str, _native.Matrix | NDArray[np.float32]], _native.FileRows | None]:
    """Returns the tensors for the engine, and an untied embedding: it is only looked up, so it stays as it is."""
    config = file.config
    tensors: dict[str, _native.Matrix | NDArray[np.float32]] = {}
    matrices: list[tuple[str, Packed]] = []
    embedding: _native.FileRows | None = None
    for name, rows, cols in expected_tensors(config):
        info = file.tensors[name]
        if name == "token_embd.weight" and not config.tied:
            embedding = _native.FileRows(info.format, rows, cols)
            matrices.append((name, embedding))
        elif rows == 1:
            tensors[name] = _vector(file, info)
        else:
            matrix = _native.Matrix(formats[name], rows, cols)
            tensors[name] = matrix
            matrices.append((name, matrix))

    def put(job: tuple[str, Packed, int, int]) -> None:
        name, into, first, count = job
        chunk = file.read(name, first, count)
        if isinstance(into, _native.Matrix):
            into.pack(first, rounded(file, name, chunk, formats[name]))
        else:
            into.put(first, chunk)

    with ThreadPoolExecutor(threads, thread_name_prefix="outpace-pack") as pool:
        for _ in pool.map(put, _chunks(file, matrices)):
            pass
    return tensors, embedding


def _chunks(file: WeightFile, matrices: list[tuple[str, Packed]]) -> Iterator[tuple[str, Packed, int, int]]:
    """Yields (name, matrix, first row, rows): whole panels of about _CHUNK_BYTES."""
    for name, matrix in matrices:
        info = file.tensors[name]
        panel = info.nbytes // info.rows * _native.panel_rows
        step = max(1, _CHUNK_BYTES // panel) * _native.panel_rows
        for first in range(0, info.rows, step):
            yield name, matrix, first, min(step, info.rows - first)


def _vector(file: WeightFile, info: TensorInfo) -> NDArray[np.float32]:
    values = file.read(info.name, 0, 1).view(_VECTORS[info.format])
    if info.format == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    offset = file.config.norm_offset if info.name.endswith("norm.weight") else 0.0
    with np.errstate(invalid="ignore"):  # what a file holds may be no number
        return np.ascontiguousarray(values, np.float32) + np.float32(offset)
