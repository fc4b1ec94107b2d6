"""A folder with config.json and safetensors: read with the same distrust as GGUF, under the same names.

Layout of a file: u64 length of the header, the header in JSON (name -> dtype, shape, data_offsets), then the bytes of
the tensors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from outpace.errors import BadModelFile, ModelNotFound, Unsupported
from outpace.native.architecture import check_tensors
from outpace.native.architectures import Architecture
from outpace.native.hf_config import architecture_of, config_from_json, gguf_name
from outpace.native.metadata import brief
from outpace.native.rawfile import RawFile
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.textfile import parse_json, read_json
from outpace.native.weights import TensorInfo

MAX_HEADER = 32 << 20
MAX_SHARDS = 512
_DTYPES = {"F32": 4, "F16": 2, "BF16": 2}
_KNOWN_DTYPES = _DTYPES | {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8,
                           "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}  # fmt: skip


def read_header(raw: RawFile) -> dict[str, tuple[TensorInfo, int]]:
    """Returns each tensor's description and where its bytes begin in the file. Raises BadModelFile or Unsupported."""
    if raw.size < 8:
        raise BadModelFile(f"{raw.path}: has {raw.size} bytes, a safetensors file at least 8")
    length = int(raw.read(0, 8).view("<u8")[0])
    if length > min(MAX_HEADER, raw.size - 8):
        raise BadModelFile(f"{raw.path}: claims a header of {length} bytes, the file has {raw.size}")
    try:
        text = raw.read(8, length).tobytes().decode()
    except UnicodeDecodeError:
        raise BadModelFile(f"{raw.path}: its header is not UTF-8") from None
    described = parse_json(text, raw.path)
    start = 8 + length
    spans: list[tuple[int, int, str]] = []
    found: dict[str, tuple[TensorInfo, int]] = {}
    for name, entry in described.items():
        if name == "__metadata__":
            continue
        info, begin, end = _tensor(raw, name, entry, raw.size - start)
        spans.append((begin, end, name))
        found[name] = info, start + begin
    spans.sort()
    for (_, end, name), (begin, _, after) in pairwise(spans):
        if begin < end:
            raise BadModelFile(f"{raw.path}: the tensors {name[:80]!r} and {after[:80]!r} overlap")
    return found


def _tensor(raw: RawFile, name: str, entry: Any, room: int) -> tuple[TensorInfo, int, int]:
    label = f"{raw.path}: the tensor {name[:80]!r}"
    if not isinstance(entry, dict):
        raise BadModelFile(f"{label} is not described by an object")
    dtype, shape, span = entry.get("dtype"), _counts(entry.get("shape")), _counts(entry.get("data_offsets"))
    if shape is None or span is None or len(span) != 2:
        shown = brief(entry.get("shape")), brief(entry.get("data_offsets"))
        raise BadModelFile(f"{label} has the shape {shown[0]} and the offsets {shown[1]}")
    if not isinstance(dtype, str) or dtype not in _KNOWN_DTYPES:
        raise Unsupported(f"{label} has the dtype {brief(dtype)}; {', '.join(_DTYPES)} are supported")
    begin, end = span
    if math.prod(shape) * _KNOWN_DTYPES[dtype] != end - begin or end > room:
        raise BadModelFile(
            f"{label} of shape {brief(shape)} and dtype {dtype} cannot be bytes {begin} to {end} of {room}"
        )
    if dtype not in _DTYPES:
        raise Unsupported(f"{label} has the dtype {dtype}; {', '.join(_DTYPES)} are supported")
    if not 1 <= len(shape) <= 2 or min(shape) == 0:
        raise Unsupported(f"{label} has the shape {brief(shape)}; vectors and matrices are supported")
    return TensorInfo(name, dtype, shape[0] if len(shape) == 2 else 1, shape[-1], end - begin), begin, end


def _counts(value: Any) -> list[int] | None:
    """Returns a list of a few counts, or None for anything else."""
    fits = isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 0 <= n < 1 << 48 for n in value)
    return value if fits else None


class SafetensorsFolder:
    """An opened folder of safetensors; a WeightFile. `path` is the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[RawFile] = []
        bytes_of = TensorBytes()
        try:
            config = read_json(path / "config.json")
            if config is None:
                raise ModelNotFound(f"{path}: has no config.json")
            architecture = architecture_of(config)
            for shard in _shards(path):
                self._add(shard, architecture, bytes_of)
            if config.get("tie_word_embeddings", False) is True and "output.weight" in bytes_of.tensors:
                bytes_of.drop("output.weight")  # transformers ties it, whatever the file holds
            generation = read_json(path / "generation_config.json") or {}
            self.config = config_from_json(config, generation, architecture, bytes_of)
            check_tensors(self.config, bytes_of.tensors)
        except (BadModelFile, Unsupported) as error:
            self.close()
            text = str(error)
            raise type(error)(text if str(path) in text else f"{path}: {text}") from None
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorInfo] = bytes_of.tensors
        self.read = bytes_of.read

    def _add(self, shard: Path, architecture: Architecture, bytes_of: TensorBytes) -> None:
        raw = RawFile(shard)
        self._files.append(raw)
        for theirs, (info, offset) in read_header(raw).items():
            name = gguf_name(theirs, architecture)
            if name is not None:
                bytes_of.add(replace(info, name=name), raw, offset)

    def close(self) -> None:
        for raw in self._files:
            raw.close()


def _shards(folder: Path) -> list[Path]:
    """Returns the weight files: those that the index names, or all there are."""
    index = read_json(folder / "model.safetensors.index.json")
    if index is None:
        single = folder / "model.safetensors"
        found = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
    else:
        names = index.get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise BadModelFile("model.safetensors.index.json has no weight_map of file names")
        wrong = next((n for n in names.values() if Path(n).name != n or not n.endswith(".safetensors")), None)
        if wrong is not None:
            raise BadModelFile(f"model.safetensors.index.json names {wrong[:80]!r}, which is no file of this folder")
        found = [folder / name for name in sorted(set(names.values()))]
    if not found:
        raise ModelNotFound(f"{folder}: has no *.safetensors")
    if len(found) > MAX_SHARDS:
        raise BadModelFile(f"{len(found)} weight files, at most {MAX_SHARDS} make sense")
    return found


def open_safetensors(path: Path | str) -> SafetensorsFolder:
    """Returns the opened and checked model. Raises ModelNotFound, BadModelFile or Unsupported, naming the place."""
    folder = Path(path)
    if not os.path.isdir(folder):
        raise ModelNotFound(f"{folder}: no such folder")
    return SafetensorsFolder(folder)
