"""A head's file: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import contextlib
import json
import random

import numpy as np
import pytest

import outpace
from outpace.errors import BadModelFile, ModelError, ModelNotFound, UsageError, VocabularyMismatch
from outpace.heads import tensorfile
from outpace.heads.file import check_target, matrix_shapes, read_head
from outpace.heads.loading import find_head
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


def test_other_formats_and_shapes_are_not_written():
    with pytest.raises(UsageError, match="Q8_0, Q4_1"):
        quantise(np.zeros((1, 32), np.float32), "Q2_K")
    with pytest.raises(UsageError, match="multiple of 32 columns, got 31"):
        quantise(np.zeros((1, 31), np.float32), "Q8_0")


def test_another_target_is_refused_by_what_differs(tmp_path, target, tiny_qwen2):
    head = read_head(write_head(tmp_path / "a.safetensors", target))
    check_target(head, target)
    with outpace.load(tiny_qwen2, threads=1) as other, pytest.raises(VocabularyMismatch, match="320 tokens, not 352"):
        check_target(head, other.target)
    retrained = read_head(write_head(tmp_path / "b.safetensors", target, target="0" * 64))
    with pytest.raises(VocabularyMismatch, match="other weights"):
        check_target(retrained, target)
    wider = read_head(write_head(tmp_path / "c.safetensors", target, hidden_size=96, taps=(0, 5)))
    with pytest.raises(VocabularyMismatch, match=r"hidden size of 96, not 64.*more than 5 layers"):
        check_target(wider, target)


def test_where_no_head_fits_the_error_says_what_was_looked_at(monkeypatch, tmp_path, target):
    monkeypatch.setenv("OUTPACE_HEADS", str(tmp_path))
    write_head(tmp_path / "other.safetensors", target, target="0" * 64)
    with pytest.raises(UsageError, match=r"no eagle head .*other\.safetensors.*other weights.*outpace train eagle"):
        find_head(target, ("eagle",))
    write_head(tmp_path / "right.safetensors", target)
    assert find_head(target, ("eagle",)).path.name == "right.safetensors"


def changed(path, **fields):
    file = tensorfile.read(path)
    config = json.loads(file.metadata["config"]) | fields
    tensorfile.write(path, dict(file.arrays), {**file.metadata, "config": json.dumps(config)})
    return path


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "oracle"}, "kind must be one of"),
        ({"hidden_size": 0}, "hidden_size must be in"),
        ({"hidden_size": True}, "hidden_size must be in"),
        ({"taps": []}, "taps must be"),
        ({"taps": [-1]}, "taps must be"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon must be"),
        ({"draft_vocab": 321}, "draft_vocab must not exceed"),
        ({"draft_vocab": 32}, "draft_ids must be"),
        ({"heads": 3}, "multiple of kv_heads"),
        ({"ffn_size": 128}, "ffn_gate must be"),
        ({"extra": 1}, "its config is not an object with"),
    ],
)
def test_a_config_that_lies_is_refused(path, fields, words):
    with pytest.raises(BadModelFile, match=words):
        read_head(changed(path, **fields))


def test_draft_ids_must_rise_within_the_vocabulary(path):
    file = tensorfile.read(path)
    for ids in (np.arange(64)[::-1], np.arange(64) + 300, np.arange(64) - 1):
        tensorfile.write(path, {**file.arrays, "draft_ids": ids.astype(np.int32)}, file.metadata)
        with pytest.raises(BadModelFile, match="draft_ids must rise within"):
            read_head(path)


def test_weights_that_are_not_finite_are_refused(path):
    file = tensorfile.read(path)
    norms = np.array(file.arrays["output_norm"])
    norms[0, 3] = np.inf
    tensorfile.write(path, {**file.arrays, "output_norm": norms}, file.metadata)
    with pytest.raises(BadModelFile, match="output_norm holds numbers that are not finite"):
        read_head(path)


def test_a_file_that_is_absent_or_short_is_one_error(tmp_path, path):
    with pytest.raises(ModelNotFound):
        read_head(tmp_path / "none.safetensors")
    whole = path.read_bytes()
    for length in (0, 7, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(BadModelFile):
            read_head(path)


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
