"""Thousands of damaged files: each ends in one of our errors, or opens and is read; soon, in little memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors_writer import tiny_folder

from damage import damage, use
from gguf_writer import tiny_model
from outpace.errors import ModelError
from outpace.native.gguf import open_gguf

_SECONDS = 10.0  # for one file; each takes about a millisecond


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
