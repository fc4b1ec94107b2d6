"""Writes a GGUF file that keeps the keys of another as they are, but for some, and has tensors of its own."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.native.gguf import TENSOR_TYPES

ALIGNMENT = 32
_TYPE_OF = {form.name: number for number, form in TENSOR_TYPES.items()}
_U32, _I32, _STRING, _ARRAY = 4, 5, 8, 9


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written. data: its bytes, made when they are written."""

    name: str
    format: str
    rows: int
    cols: int
    data: Callable[[], NDArray[np.uint8]]

    @property
    def nbytes(self) -> int:
        block = TENSOR_TYPES[_TYPE_OF[self.format]]
        return self.rows * (self.cols // block.block) * block.nbytes


def write_gguf(
    path: Path,
    keys: Mapping[str, bytes],
    changed: Mapping[str, int | str | Sequence[int]],
    tensors: Sequence[NewTensor],
    progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Writes the file, all or nothing.

    keys: name -> the bytes of a key in another file, name included. changed: what is added or replaced; an int is
    written as u32, a sequence as an array of i32. progress: told the fraction of bytes written. Raises UsageError
    where nothing can be written.
    """
    kept = [raw for name, raw in keys.items() if name not in changed]
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kept) + len(changed)))
    for raw in (*kept, *(_string(name) + _value(value) for name, value in changed.items())):
        head += raw
    offset = 0
    for tensor in tensors:
        shape = (tensor.cols,) if tensor.rows == 1 else (tensor.cols, tensor.rows)
        head += _string(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", _TYPE_OF[tensor.format], offset)
        offset += _padded(tensor.nbytes)
    head += bytes(_padded(len(head)) - len(head))
    try:
        _write(path, head, tensors, offset, progress)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}; nothing was kept") from None


def _write(
    path: Path, head: bytearray, tensors: Sequence[NewTensor], size: int, progress: Callable[[float], None]
) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            file.write(head)
            written = 0
            for tensor in tensors:
                data = tensor.data()
                if data.nbytes != tensor.nbytes:
                    raise ValueError(f"{tensor.name} must have {tensor.nbytes} bytes, got {data.nbytes}")
                file.write(data.tobytes())
                file.write(bytes(_padded(data.nbytes) - data.nbytes))
                written += _padded(data.nbytes)
                progress(written / size)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise


def _padded(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: int | str | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    return struct.pack("<IIQ", _ARRAY, _I32, len(value)) + np.asarray(value, "<i4").tobytes()
