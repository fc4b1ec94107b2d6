"""A head's file: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from outpace.errors import ModelError
from outpace.heads import tensorfile
from outpace.heads.file import matrix_shapes, read_head
from outpace.heads.quantise import quantise
from outpace.native.dequantise import dequantise
from small_heads import KINDS, config_for, random_weights, write_head


@pytest.fixture
def target(native):
    return native.target


@pytest.fixture
def path(tmp_path, target):
    return write_head(tmp_path / "head.safetensors", target)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_is_read(tmp_path, target, kind):
    head = read_head(write_head(tmp_path / "head.safetensors", target, kind))
    assert head.config == config_for(target, kind)
    assert head.card == {"made": "at random"}
    weights = random_weights(head.config)
    for name, (rows, cols) in matrix_shapes(head.config).items():
        format, blocks = head.matrices[name]
        assert np.abs(dequantise(blocks, format, rows, cols) - weights[name]).max() < 0.02


@pytest.mark.parametrize(("format", "error"), [("Q8_0", 0.004), ("Q4_1", 0.067)])
def test_blocks_hold_the_rows_to_half_a_step(format, error):
    rows = np.random.default_rng(0).uniform(-1, 1, (7, 64)).astype(np.float32)
    rows[3] = 0.5
    assert np.abs(dequantise(quantise(rows, format), format, 7, 64) - rows).max() <= error + 1e-3
    assert not dequantise(quantise(np.zeros((1, 32), np.float32), format), format, 1, 32).any()


def test_damaged_headers_never_do_more_than_raise(path):
    whole = bytearray(path.read_bytes())
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(3000)] = rng.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ModelError):
            read_head(path)


def test_an_interrupted_write_leaves_the_old_file(monkeypatch, path):
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(tensorfile.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        tensorfile.write(path, {"draft_ids": np.zeros(3, np.int32)}, {})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
