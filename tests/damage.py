"""Damaged model files: faults where headers are, and all that a model's bytes go through to meet them."""

from __future__ import annotations

import random
import struct
from contextlib import closing
from pathlib import Path

from outpace.errors import BadModelFile, ModelNotFound, TooLarge, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.native.weights import WeightFile
from outpace.text import Text
from outpace.types import Draft, Prompt

try:
    from outpace.native.loading import load_native
except ImportError:  # the engine is not built: files are read all the same
    load_native = None  # type: ignore[assignment]

EXTREMES = [
    0,
    1,
    7,
    255,
    256,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]


def damage(rng: random.Random, data: bytes, header: int) -> bytes:
    """Returns the file with a few faults, most of them in its first `header` bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 40))):
        at = rng.randrange(min(header, len(out)) if rng.random() < 0.95 else len(out)) if out else 0
        match rng.randrange(7):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes([out[at] ^ 1 << rng.randrange(8)]) if out else b""
            case 2:
                out[at : at + 8] = struct.pack("<Q", rng.choice(EXTREMES))
            case 3:
                out[at : at + 4] = struct.pack("<I", rng.choice(EXTREMES) & 0xFFFFFFFF)
            case 4:
                del out[at : at + rng.choice((1, 4, 8, 100))]
            case 5:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 8, 100)))
            case 6:
                copy = rng.randrange(len(out) or 1)
                out[at : at + 16] = out[copy : copy + 16]
    return bytes(out[: rng.randrange(len(out) + 1)] if rng.random() < 0.1 else out)


def use(path: Path) -> str:
    """Opens a model, reads all of it, loads it and scores a draft; returns the refusal, or nothing."""
    try:
        with closing(open_safetensors(path) if path.is_dir() else open_gguf(path)) as file:
            for name, tensor in file.tensors.items():
                assert file.read(name, 0, tensor.rows).nbytes == tensor.nbytes
            text = Text.from_weights(file)
            text.decode(text.encode("the cat <|im_end|> 12", special=True))
            if load_native is not None:
                _score(file)
    except (BadModelFile, Unsupported, ModelNotFound, TooLarge) as error:
        return str(error)
    return ""


def _score(file: WeightFile) -> None:
    target = load_native(file, threads=1, context=min(8, file.config.context_length))
    session, _ = target.open(Prompt((0, file.config.vocab_size - 1)[: target.max_length]))
    try:
        if target.max_length > 4:
            target.score_many([(session, Draft.chain((1, 0)))])
    finally:
        session.close()
