"""Safetensors files of our own arrays: written as a whole or not at all, and read with distrust."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile
from outpace.native.metadata import brief, quoted
from outpace.native.rawfile import RawFile
from outpace.native.textfile import parse_json

AnyArray = NDArray[Any]

_DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class TensorFile:
    """An opened file: its arrays, mapped and read-only, and the strings beside them."""

    path: Path
    arrays: Mapping[str, AnyArray]
    metadata: Mapping[str, str]


def write(path: Path, arrays: Mapping[str, AnyArray], metadata: Mapping[str, str]) -> None:
    """Writes the file under another name, then puts it in place: who reads `path` never sees half of it."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                out.write(np.ascontiguousarray(array).data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> TensorFile:
    """Returns the opened file. Raises ModelNotFound, or BadModelFile when it contradicts itself."""
    with RawFile(path) as raw:
        if raw.size < 8:
            raise BadModelFile(f"{path}: has {raw.size} bytes, a safetensors file at least 8")
        length, most = int(raw.read(0, 8).view("<u8")[0]), min(_MAX_HEADER, raw.size - 8)
        if length > most:
            raise BadModelFile(f"{path}: claims a header of {length} bytes, at most {most} make sense")
        try:
            text = raw.read(8, length).tobytes().decode()
        except UnicodeDecodeError:
            raise BadModelFile(f"{path}: its header is not UTF-8") from None
    header = parse_json(text, path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadModelFile(f"{path}: its __metadata__ must be an object of strings, got {brief(metadata)}")
    start = 8 + length
    arrays = {name: _mapped(path, start, raw.size - start, name, entry) for name, entry in header.items()}
    return TensorFile(path, arrays, metadata)


def _mapped(path: Path, start: int, room: int, name: str, entry: Any) -> AnyArray:
    label = f"{path}: the tensor {quoted(name)}"
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        counts = [*shape, begin, end]
        known = dtype in _DTYPES and len(shape) <= 4 and all(type(n) is int and 0 <= n < 1 << 40 for n in counts)
    except (KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise BadModelFile(
            f"{label} needs a dtype of {', '.join(_DTYPES)}, a shape and two data_offsets, got {brief(entry)}"
        )
    items = 1
    for n in shape:
        items *= n
    if begin > end or end > room or items * np.dtype(_DTYPES[dtype]).itemsize != end - begin:
        raise BadModelFile(f"{label} of shape {shape} and dtype {dtype} cannot be bytes {begin} to {end} of {room}")
    if items == 0:
        return np.zeros(shape, _DTYPES[dtype])
    return np.memmap(path, _DTYPES[dtype], "r", start + begin, tuple(shape))
