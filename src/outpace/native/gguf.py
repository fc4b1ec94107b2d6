"""GGUF, versions 2 and 3: a header of typed keys and tensor descriptions, then the tensors' bytes.

Layout (little-endian): "GGUF", u32 version, u64 tensors, u64 keys; each key is a string, a u32 type and a value; each
tensor a string, u32 dimensions, u64 each, u32 type, u64 offset from the data's start, which is aligned. A string is a
u64 length and UTF-8.

Every count, length and offset is compared with the file's size before it is used. Header bytes are held once; arrays
of strings stay packed until asked for, so that a header costs a few times its own size and no more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from outpace.errors import BadModelFile, Unsupported
from outpace.native.architecture import check_tensors, config_from_gguf
from outpace.native.gguf_parts import check_part, check_total, part_paths
from outpace.native.metadata import StringArray, Value, brief, quoted
from outpace.native.rawfile import RawFile
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import TensorInfo

MAX_HEADER = 128 << 20
"""Bytes of keys and tensor descriptions; the largest vocabularies in use need about 16 million."""

_FIRST_READ = 8 << 20
_MAX_KEYS = _MAX_TENSORS = 1 << 16
_MAX_ARRAYS = 1 << 12
_MAX_NESTING = 3
_MAX_NAME = 1 << 10

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A tensor type of GGUF: `block` weights take `nbytes` bytes."""

    name: str
    block: int
    nbytes: int
    supported: bool = False


TENSOR_TYPES: Mapping[int, BlockFormat] = {
    0: BlockFormat("F32", 1, 4, True),
    1: BlockFormat("F16", 1, 2, True),
    2: BlockFormat("Q4_0", 32, 18, True),
    3: BlockFormat("Q4_1", 32, 20, True),
    6: BlockFormat("Q5_0", 32, 22, True),
    7: BlockFormat("Q5_1", 32, 24, True),
    8: BlockFormat("Q8_0", 32, 34, True),
    9: BlockFormat("Q8_1", 32, 36),
    10: BlockFormat("Q2_K", 256, 84, True),
    11: BlockFormat("Q3_K", 256, 110, True),
    12: BlockFormat("Q4_K", 256, 144, True),
    13: BlockFormat("Q5_K", 256, 176, True),
    14: BlockFormat("Q6_K", 256, 210, True),
    15: BlockFormat("Q8_K", 256, 292),
    16: BlockFormat("IQ2_XXS", 256, 66),
    17: BlockFormat("IQ2_XS", 256, 74),
    18: BlockFormat("IQ3_XXS", 256, 98),
    19: BlockFormat("IQ1_S", 256, 50),
    20: BlockFormat("IQ4_NL", 32, 18, True),
    21: BlockFormat("IQ3_S", 256, 110),
    22: BlockFormat("IQ2_S", 256, 82),
    23: BlockFormat("IQ4_XS", 256, 136, True),
    24: BlockFormat("I8", 1, 1),
    25: BlockFormat("I16", 1, 2),
    26: BlockFormat("I32", 1, 4),
    27: BlockFormat("I64", 1, 8),
    28: BlockFormat("F64", 1, 8),
    29: BlockFormat("IQ1_M", 256, 56),
    30: BlockFormat("BF16", 1, 2, True),
    34: BlockFormat("TQ1_0", 256, 54),
    35: BlockFormat("TQ2_0", 256, 66),
    39: BlockFormat("MXFP4", 32, 17),
}


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed and checked header. offsets: of each tensor's first byte in the file."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    offsets: Mapping[str, int]


class _MoreBytes(Exception):
    """The header goes on past the bytes at hand, and the file is long enough."""


class _Cursor:
    """A place in the first bytes of a file of `size` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data = data
        self.size = size
        self.at = 0
        self.arrays = 0

    def skip(self, count: int, what: str) -> int:
        """Returns where the next `count` bytes begin, and moves past them."""
        start = self.at
        if count > self.size - start:
            raise BadModelFile(f"{what} at byte {start} needs {count} bytes, the file has {self.size - start} left")
        if start + count > len(self.data):
            raise _MoreBytes
        self.at = start + count
        return start

    def u32(self, what: str) -> int:
        start = self.skip(4, what)
        return int(_U32(self.data, start)[0])

    def u64(self, what: str) -> int:
        start = self.skip(8, what)
        return int(_U64(self.data, start)[0])

    def string(self, what: str, longest: int = MAX_HEADER) -> str:
        count = self.u64(f"the length of {what}")
        if count > longest:
            raise BadModelFile(f"{what} at byte {self.at} claims {count} bytes, at most {longest} make sense")
        start = self.skip(count, what)
        try:
            return self.data[start : start + count].decode()
        except UnicodeDecodeError:
            raise BadModelFile(f"{what} at byte {start} is not UTF-8") from None

    def value(self, kind: int, what: str, depth: int = 0) -> Value:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(what, depth)
        return self._scalar(kind, what)

    def _scalar(self, kind: int, what: str) -> bool | int | float:
        dtype = _dtype(kind, what)
        start = self.skip(dtype.itemsize, what)
        value = np.frombuffer(self.data, dtype, 1, start)[0].item()
        if kind == _BOOL:
            if value > 1:
                raise BadModelFile(f"{what} at byte {start} is a boolean of value {value}")
            return bool(value)
        number: int | float = value
        return number

    def _array(self, what: str, depth: int) -> Value:
        self.arrays += 1
        if depth >= _MAX_NESTING or self.arrays > _MAX_ARRAYS:
            raise BadModelFile(f"{what} nests more than {_MAX_NESTING} arrays, or is one of over {_MAX_ARRAYS}")
        kind = self.u32(f"the type of {what}")
        count = self.u64(f"the count of {what}")
        if kind == _STRING:
            return self._strings(count, what)
        if kind == _ARRAY:
            if count > _MAX_ARRAYS:
                raise BadModelFile(f"{what} claims {count} arrays, at most {_MAX_ARRAYS} make sense")
            return [self._array(what, depth + 1) for _ in range(count)]
        dtype = _dtype(kind, what)
        start = self.skip(count * dtype.itemsize, what)
        array = np.frombuffer(self.data, dtype, count, start).copy()
        if kind == _BOOL and array.size and array.max() > 1:
            raise BadModelFile(f"{what} holds a boolean of value {array.max()}")
        return array

    def _strings(self, count: int, what: str) -> StringArray:
        data, at, last = self.data, self.at, len(self.data) - 8
        if count > (self.size - at) // 8:
            raise BadModelFile(f"{what} claims {count} strings at byte {at}, {self.size - at} bytes before the end")
        start = at
        for _ in range(count):
            if at > last:
                at += 8  # past the bytes at hand: the next line raises
                break
            at += 8 + _U64(data, at)[0]
        self.skip(at - start, what)
        return StringArray(what, data[start:at], count)


def _dtype(kind: int, what: str) -> np.dtype[np.generic]:
    if kind not in _SCALARS:
        raise BadModelFile(f"{what} has the unknown type {kind}")
    return np.dtype(_SCALARS[kind])


def parse_header(data: bytes, size: int) -> Header:
    """Returns the header that starts `data`, the first bytes of a file of `size` bytes.

    Raises BadModelFile, Unsupported, or _MoreBytes when `data` is too short and the file is not.
    """
    cursor = _Cursor(data, size)
    if size < 4:
        raise BadModelFile(f"not a GGUF file: it has {size} bytes")
    cursor.skip(4, "the magic number")
    if data[:4] != b"GGUF":
        raise BadModelFile(f"not a GGUF file: it starts with {data[:4]!r}")
    version = cursor.u32("the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        which = f"big-endian GGUF version {swapped}" if swapped in (2, 3) else f"GGUF version {version}"
        raise Unsupported(f"{which} is not supported; little-endian versions 2 and 3 are")
    tensors = cursor.u64("the number of tensors")
    keys = cursor.u64("the number of keys")
    if tensors > _MAX_TENSORS or keys > _MAX_KEYS:
        raise BadModelFile(f"claims {tensors} tensors and {keys} keys, at most {_MAX_TENSORS} of each make sense")
    metadata: dict[str, Value] = {}
    for i in range(keys):
        key = cursor.string(f"the name of key {i}", _MAX_NAME)
        if key in metadata:
            raise BadModelFile(f"the key {quoted(key)} appears twice")
        metadata[key] = cursor.value(cursor.u32(f"the type of key {quoted(key)}"), f"key {quoted(key)}")
    infos, offsets = _tensors(cursor, tensors, metadata)
    return Header(MappingProxyType(metadata), MappingProxyType(infos), MappingProxyType(offsets))


def _tensors(
    cursor: _Cursor, count: int, metadata: Mapping[str, Value]
) -> tuple[dict[str, TensorInfo], dict[str, int]]:
    """Returns the tensors' descriptions and where their bytes are in the file."""
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 16 or alignment & (alignment - 1):
        raise BadModelFile(f"general.alignment must be a power of two up to 65536, got {brief(alignment)}")
    infos: dict[str, TensorInfo] = {}
    offsets: dict[str, int] = {}
    unsupported: dict[str, str] = {}
    for i in range(count):
        name = cursor.string(f"the name of tensor {i}", _MAX_NAME)
        if name in infos:
            raise BadModelFile(f"the tensor {quoted(name)} appears twice")
        infos[name], offsets[name], form = _tensor(cursor, name, alignment)
        if not form.supported:
            unsupported.setdefault(form.name, name)
    data_start = -(-cursor.at // alignment) * alignment
    end, previous = data_start, ""
    for name in sorted(offsets, key=offsets.__getitem__):
        offsets[name] += data_start
        if offsets[name] < end:
            raise BadModelFile(f"the tensors {quoted(previous)} and {quoted(name)} overlap")
        end, previous = offsets[name] + infos[name].nbytes, name
        if end > cursor.size:
            raise BadModelFile(f"the tensor {quoted(name)} ends at byte {end}, the file at {cursor.size}: truncated?")
    if unsupported:
        supported = ", ".join(form.name for form in TENSOR_TYPES.values() if form.supported)
        found = ", ".join(f"{form} ({quoted(name)})" for form, name in list(unsupported.items())[:3])
        raise Unsupported(f"tensor type {found} is not supported; {supported} are: take a Q4_K_M or Q8_0 file")
    return infos, offsets


def _tensor(cursor: _Cursor, name: str, alignment: int) -> tuple[TensorInfo, int, BlockFormat]:
    dimensions = cursor.u32(f"the dimensions of {quoted(name)}")
    if not 1 <= dimensions <= 4:
        raise BadModelFile(f"the tensor {quoted(name)} has {dimensions} dimensions, 1 to 4 make sense")
    shape = [cursor.u64(f"the shape of {quoted(name)}") for _ in range(dimensions)]
    if min(shape) == 0:
        raise BadModelFile(f"the tensor {quoted(name)} has the empty shape {shape}")
    matrices = math.prod(shape[2:])
    if matrices > 1 and (dimensions > 3 or not name.endswith("_exps.weight")):
        raise Unsupported(f"the tensor {quoted(name)} has {dimensions} dimensions; only matrices are supported")
    kind = cursor.u32(f"the type of {quoted(name)}")
    if kind not in TENSOR_TYPES:
        raise Unsupported(f"the tensor {quoted(name)} has the unknown type {kind}; take a Q4_K_M or Q8_0 file")
    form = TENSOR_TYPES[kind]
    cols, rows = shape[0], (shape[1] if dimensions > 1 else 1) * matrices
    if cols % form.block:
        raise BadModelFile(f"the tensor {quoted(name)} has rows of {cols}, not a multiple of {form.block}")
    offset = cursor.u64(f"the offset of {quoted(name)}")
    if offset % alignment:
        raise BadModelFile(f"the tensor {quoted(name)} is at {offset}, not a multiple of the alignment {alignment}")
    nbytes = rows * (cols // form.block) * form.nbytes
    if offset + nbytes > cursor.size:
        raise BadModelFile(f"the tensor {quoted(name)} needs {nbytes} bytes at {offset}, the file has {cursor.size}")
    return TensorInfo(name, form.name, rows, cols, nbytes), offset, form


class GgufFile:
    """An opened GGUF model; a WeightFile. `metadata` holds every key, arrays of strings packed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[Path, RawFile] = {}
        try:
            bytes_of = TensorBytes()
            self.metadata = self._open_parts(bytes_of)
            self.config = config_from_gguf(self.metadata, bytes_of)
            self.tensors: Mapping[str, TensorInfo] = bytes_of.tensors
            self.read = bytes_of.read
            check_tensors(self.config, self.tensors)
        except (BadModelFile, Unsupported) as error:
            self.close()
            named = any(str(error).startswith(f"{file}: ") for file in (path, *self._files))
            raise error if named else type(error)(f"{path}: {error}") from None
        except BaseException:
            self.close()
            raise

    def _open_parts(self, bytes_of: TensorBytes) -> Mapping[str, Value]:
        """Returns the first part's keys, having opened all parts and added their tensors."""
        headers = {self.path: self._open(self.path)}
        parts = part_paths(self.path, headers[self.path].metadata)
        headers |= {part: self._open(part) for part in parts if part not in headers}
        first = headers[parts[0]].metadata
        for part in parts:
            if len(parts) > 1:
                check_part(part, headers[part].metadata, first)
            for name, info in headers[part].tensors.items():
                bytes_of.add(info, self._files[part], headers[part].offsets[name])
        if len(parts) > 1:
            check_total(len(bytes_of.tensors), first)
        return first

    def _open(self, path: Path) -> Header:
        self._files[path] = raw = RawFile(path)
        try:
            return _read_header(raw)
        except (BadModelFile, Unsupported) as error:
            raise type(error)(f"{path}: {error}") from None

    def keys(self) -> dict[str, bytes]:
        """Returns each key's bytes as they stand in the file: its name, its type and its value."""
        raw = self._files[self.path]
        head = raw.read(0, min(MAX_HEADER, raw.size)).tobytes()
        cursor = _Cursor(head, raw.size)
        cursor.skip(16, "the numbers of versions and tensors")
        found: dict[str, bytes] = {}
        for _ in range(cursor.u64("the number of keys")):
            start = cursor.at
            name = cursor.string("a name", _MAX_NAME)
            cursor.value(cursor.u32("a type"), name)
            found[name] = head[start : cursor.at]
        return found

    def close(self) -> None:
        for raw in self._files.values():
            raw.close()


def _read_header(raw: RawFile) -> Header:
    """Returns the header, from as few bytes of the file as hold it."""
    count = _FIRST_READ
    while True:
        try:
            return parse_header(raw.read(0, min(count, raw.size)).tobytes(), raw.size)
        except _MoreBytes:
            if count >= MAX_HEADER:
                raise BadModelFile(f"its header is over {MAX_HEADER} bytes long") from None
            count = min(4 * count, MAX_HEADER)


def open_gguf(path: Path | str) -> GgufFile:
    """Returns the opened and checked model, all its parts where it has several, given any one of them.

    Raises ModelNotFound, BadModelFile or Unsupported, naming the file.
    """
    return GgufFile(Path(path))
