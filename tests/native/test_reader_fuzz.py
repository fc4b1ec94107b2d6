"""Thousands of damaged files: each ends in one of our errors, or opens and is read; soon, in little memory."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from safetensors_writer import tiny_folder

from gguf_writer import tiny_model
from outpace.errors import BadModelFile, ModelError, ModelNotFound, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.text import Text

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
_SECONDS = 10.0  # for one file; each takes about a millisecond


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
    """Opens a model and reads all of it; returns the refusal, or nothing."""
    try:
        with closing(open_safetensors(path) if path.is_dir() else open_gguf(path)) as file:
            for name, tensor in file.tensors.items():
                assert file.read(name, 0, tensor.rows).nbytes == tensor.nbytes
            text = Text.from_weights(file)
            text.decode(text.encode("the cat <|im_end|> 12", special=True))
    except (BadModelFile, Unsupported, ModelNotFound) as error:
        return str(error)
    return ""


def check(path: Path, count: int, write: Callable[[random.Random], object]) -> int:
    """Uses `count` damaged files; returns how many were refused."""
    refused = 0
    for seed in range(count):
        write(random.Random(seed))
        started = time.monotonic()
        refusal = use(path)
        assert time.monotonic() - started < _SECONDS, f"seed {seed}"
        assert "\n" not in refusal, f"seed {seed}: {refusal}"
        assert len(refusal) < 1000, f"seed {seed}: {refusal}"
        refused += bool(refusal)
    return refused


def test_damaged_gguf_files_are_refused_or_read(tmp_path: Path) -> None:
    data = tiny_model(tmp_path / "good.gguf").read_bytes()
    path = tmp_path / "bad.gguf"

    def write(rng: random.Random) -> None:
        path.write_bytes(damage(rng, data, 2_000 if rng.random() < 0.5 else 7_700))  # keys; then tensors too

    refused = check(path, 4000, write)
    assert refused > 2000


def test_damaged_safetensors_are_refused_or_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    data = (folder / "model.safetensors").read_bytes()
    refused = check(folder, 1500, lambda rng: (folder / "model.safetensors").write_bytes(damage(rng, data, 3000)))
    assert refused > 750


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_damaged_json_is_refused_or_read(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    data = (folder / name).read_bytes()
    refused = check(folder, 400, lambda rng: (folder / name).write_bytes(damage(rng, data, len(data))))
    assert refused > 200


def test_refusing_takes_little_memory(tmp_path: Path) -> None:
    data = tiny_model(tmp_path / "good.gguf").read_bytes()
    path = tmp_path / "bad.gguf"
    tracemalloc.start()
    try:
        for seed in range(300):
            path.write_bytes(damage(random.Random(seed), data, 12_000))
            with suppress(ModelError):
                open_gguf(path).close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(data)
