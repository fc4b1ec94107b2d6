"""Every refusal of a head's file, word for word: what in it is wrong, or which target it was made for."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import outpace
from outpace.errors import BadModelFile, MissingExtra, ModelNotFound, UsageError, VocabularyMismatch
from outpace.heads import tensorfile
from outpace.heads.file import check_target, read_head
from outpace.heads.loading import find_head
from outpace.heads.published import published_head
from outpace.heads.quantise import quantise
from small_heads import write_head

FIELDS = (
    "kind, taps, hidden_size, heads, kv_heads, head_dim, ffn_size, vocab_size, draft_vocab, block, norm_epsilon, "
    "rope_theta, rope_interleaved, target"
)
OTHER = (
    "the head other.safetensors was made for a target with other weights (same shape, another model or quantisation)"
)
REMEDY = "train one with `outpace train eagle`, and name its file or folder in OUTPACE_HEADS"


@pytest.fixture
def target(native):
    return native.target


@pytest.fixture
def path(tmp_path, target):
    return write_head(tmp_path / "head.safetensors", target)


def changed(path, **fields):
    """Writes the head anew with some fields of its config replaced; None takes one away."""
    file = tensorfile.read(path)
    config = json.loads(file.metadata["config"]) | fields
    kept = {name: value for name, value in config.items() if value is not None}
    tensorfile.write(path, dict(file.arrays), {**file.metadata, "config": json.dumps(kept)})


def with_header(path, change):
    """Writes the head anew with what `change` makes of its header, an object or bytes."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    made = change(json.loads(data[8:end]))
    text = made if isinstance(made, bytes) else json.dumps(made).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])


CONFIGS = [
    ({"kind": "oracle"}, "kind must be one of eagle, parallel, medusa, blockwise, got 'oracle'"),
    ({"kind": []}, "kind must be one of eagle, parallel, medusa, blockwise, got []"),
    ({"hidden_size": 0}, "hidden_size must be in [1, 131072], got 0"),
    ({"hidden_size": True}, "hidden_size must be in [1, 131072], got True"),
    ({"heads": "a\nb"}, "heads must be in [1, 1024], got 'a\\nb'"),
    ({"kv_heads": 2.0}, "kv_heads must be in [1, 1024], got 2.0"),
    ({"head_dim": 513}, "head_dim must be in [1, 512], got 513"),
    ({"head_dim": 24}, "head_dim must be a multiple of 16, got 24"),
    ({"ffn_size": -1}, "ffn_size must be in [1, 1048576], got -1"),
    ({"vocab_size": 10**30}, "vocab_size must be in [1, 4194304], got 1000000000000000000000000000000"),
    ({"block": 17}, "block must be in [1, 16], got 17"),
    ({"taps": []}, "taps must be one to eight layers in [0, 1024), got []"),
    ({"taps": [-1]}, "taps must be one to eight layers in [0, 1024), got [-1]"),
    ({"taps": 3}, "taps must be one to eight layers in [0, 1024), got 3"),
    ({"norm_epsilon": float("nan")}, "norm_epsilon must be in [1e-30, 0.1], got nan"),
    ({"norm_epsilon": 1e-320}, "norm_epsilon must be in [1e-30, 0.1], got 1e-320"),
    ({"norm_epsilon": 2}, "norm_epsilon must be in [1e-30, 0.1], got 2"),
    ({"norm_epsilon": True}, "norm_epsilon must be in [1e-30, 0.1], got True"),
    ({"rope_theta": 1}, "rope_theta must be in [1.001, 1e+11], got 1"),
    ({"rope_theta": float("inf")}, "rope_theta must be in [1.001, 1e+11], got inf"),
    ({"rope_theta": 10**400}, f"rope_theta must be in [1.001, 1e+11], got 1{'0' * 59}"),
    ({"rope_interleaved": 1}, "rope_interleaved must be true or false, got 1"),
    ({"target": "x"}, "target must be a fingerprint of 64 hexadecimal digits, got 'x'"),
    (
        {"block": 0, "taps": 0},
        "block must be in [1, 16], got 0; taps must be one to eight layers in [0, 1024), got 0",
    ),
    ({"draft_vocab": 321}, "draft_vocab must be in [1, 320], got 321"),
    ({"heads": 3}, "heads must be a multiple of kv_heads, got 3 and 2"),
    ({"draft_vocab": 32}, "draft_ids must be int32 [32], got int32 [64]"),
    ({"ffn_size": 128}, "ffn_gate must be uint8 [128, 68], got uint8 [96, 68]"),
    ({"ffn_size": 33}, "ffn_down must have a multiple of 32 columns, got 33"),
    ({"block": 4}, "mask must be float32 [4, 64], got float32 [3, 64]"),
    ({"extra": 1}, f"its config has the unknown 'extra'; it must have {FIELDS}"),
    ({"block": None}, f"its config lacks block; it must have {FIELDS}"),
]


@pytest.mark.parametrize(("fields", "message"), CONFIGS, ids=lambda value: str(value)[:30])
def test_a_config_that_lies(path, fields, message):
    if fields == {"ffn_size": 33}:  # what needs no multiple is as the config says
        file = tensorfile.read(path)
        arrays = dict(file.arrays)
        for name in ("ffn_gate", "ffn_up"):
            arrays[name] = np.array(arrays[name])[:33]
        tensorfile.write(path, arrays, file.metadata)
    changed(path, **fields)
    with refused(BadModelFile, f"{path}: {message}"):
        read_head(path)


NOT_JSON = "not valid JSON: Expecting value: line 1 column 1 (char 0)"
USABLE = "a dtype of F32, F16, I64, I32, U8, a shape and two data_offsets"
HEADERS = {
    "no UTF-8": (lambda header: b"\xff\xff", "its header is not UTF-8"),
    "no JSON": (lambda header: b"    ", "not valid JSON: Expecting value: line 1 column 5 (char 4)"),
    "nested": (lambda header: b"[" * 100_000, "its JSON is nested too deeply"),
    "no object": (lambda header: [], "not a JSON object"),
    "metadata no object": (
        lambda header: header | {"__metadata__": 3},
        "its __metadata__ must be an object of strings, got 3",
    ),
    "metadata no strings": (
        lambda header: header | {"__metadata__": {"config": 3}},
        "its __metadata__ must be an object of strings, got {'config': 3}",
    ),
    "no metadata": (lambda header: header | {"__metadata__": {}}, f"its config: {NOT_JSON}"),
    "no card": (
        lambda header: header | {"__metadata__": {**header["__metadata__"], "card": ""}},
        f"its card: {NOT_JSON}",
    ),
    "formats no object": (
        lambda header: header | {"__metadata__": {**header["__metadata__"], "formats": "[]"}},
        "its formats: not a JSON object",
    ),
    "formats unhashable": (
        lambda header: header | {"__metadata__": {**header["__metadata__"], "formats": '{"fuse": []}'}},
        "fuse is stored as []; Q8_0, Q4_1 are supported",
    ),
    "another format": (
        lambda header: header | {"__metadata__": {**header["__metadata__"], "formats": '{"fuse": "Q2_K"}'}},
        "fuse is stored as 'Q2_K'; Q8_0, Q4_1 are supported",
    ),
    "an entry no object": (lambda header: header | {"fuse": 3}, f"the tensor 'fuse' needs {USABLE}, got 3"),
    "a dtype": (
        lambda header: header | {"fuse": {"dtype": "F8"}},
        f"the tensor 'fuse' needs {USABLE}, got {{'dtype': 'F8'}}",
    ),
    "a shape": (
        lambda header: header | {"fuse": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}},
        f"the tensor 'fuse' needs {USABLE}, got {{'dtype': 'U8', 'shape': [-1], 'data_offsets': [0, 1]}}",
    ),
    "too few bytes": (
        lambda header: header | {"fuse": {"dtype": "U8", "shape": [9], "data_offsets": [0, 8]}},
        "the tensor 'fuse' of shape [9] and dtype U8 cannot be bytes 0 to 8 of ROOM",
    ),
    "a missing tensor": (
        lambda header: {name: entry for name, entry in header.items() if name != "output_norm"},
        "output_norm must be float32 [1, 64], it is missing",
    ),
}


@pytest.mark.parametrize(("change", "message"), HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies(path, change, message):
    data = path.read_bytes()
    room = len(data) - 8 - int.from_bytes(data[:8], "little")
    with_header(path, change)
    with refused(BadModelFile, f"{path}: {message.replace('ROOM', str(room))}"):
        read_head(path)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(64)[::-1], "draft_ids must rise within [0, 320), got 63 to 0"),
        (np.arange(64) + 300, "draft_ids must rise within [0, 320), got 300 to 363"),
        (np.arange(64) - 1, "draft_ids must rise within [0, 320), got -1 to 62"),
    ],
    ids=["falling", "too large", "negative"],
)
def test_draft_ids(path, ids, message):
    file = tensorfile.read(path)
    tensorfile.write(path, {**file.arrays, "draft_ids": ids.astype(np.int32)}, file.metadata)
    with refused(BadModelFile, f"{path}: {message}"):
        read_head(path)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite(path, value):
    file = tensorfile.read(path)
    norms = np.array(file.arrays["output_norm"])
    norms[0, 3] = value
    tensorfile.write(path, {**file.arrays, "output_norm": norms}, file.metadata)
    with refused(BadModelFile, f"{path}: output_norm holds a number that is not finite"):
        read_head(path)


def test_a_file_that_is_cut_short(path):
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    room = len(whole) - 8 - header
    lines = {
        0: "has 0 bytes, a safetensors file at least 8",
        7: "has 7 bytes, a safetensors file at least 8",
        8: f"claims a header of {header} bytes, at most 0 make sense",
        100: f"claims a header of {header} bytes, at most 92 make sense",
        len(whole) - 1: f"the tensor 'ffn_down' of shape [64, 102] and dtype U8 cannot be bytes {room - 6528} to "
        f"{room} of {room - 1}",
    }
    for length, line in lines.items():
        path.write_bytes(whole[:length])
        with refused(BadModelFile, f"{path}: {line}"):
            read_head(path)


def test_what_is_no_file(tmp_path):
    with refused(ModelNotFound, f"{tmp_path / 'none.safetensors'}: no such file"):
        read_head(tmp_path / "none.safetensors")
    with refused(BadModelFile, f"{tmp_path}: not a regular file"):
        read_head(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with refused(BadModelFile, f"{loop}: cannot be opened: {os.strerror(errno.ELOOP)}"):
        read_head(loop)
    long = Path("x" * 300)
    with refused(BadModelFile, f"{long}: cannot be opened: {os.strerror(errno.ENAMETOOLONG)}"):
        read_head(long)


def test_another_target_is_refused_by_what_differs(tmp_path, target, tiny_qwen2):
    head = read_head(write_head(tmp_path / "a.safetensors", target))
    check_target(head, target)
    with outpace.load(tiny_qwen2, threads=1) as other:
        line = "the head a.safetensors was made for a target with 320 tokens, not 352"
        with refused(VocabularyMismatch, line):
            check_target(head, other.target)
    retrained = read_head(write_head(tmp_path / "other.safetensors", target, target="0" * 64))
    with refused(VocabularyMismatch, OTHER):
        check_target(retrained, target)
    wider = read_head(write_head(tmp_path / "c.safetensors", target, hidden_size=96, taps=(0, 5)))
    line = "the head c.safetensors was made for a target with a hidden size of 96, not 64, more than 5 layers, not 2"
    with refused(VocabularyMismatch, line):
        check_target(wider, target)


@pytest.fixture
def none_shipped(monkeypatch, tmp_path):
    monkeypatch.setattr("outpace.heads.loading.SHIPPED", tmp_path / "shipped")


@pytest.mark.usefixtures("none_shipped")
def test_where_no_head_fits_the_error_says_what_was_looked_at(monkeypatch, tmp_path, target):
    monkeypatch.setenv("OUTPACE_HEADS", str(tmp_path))
    with refused(UsageError, f"no eagle head for llama (none is there): {REMEDY}"):
        find_head(target, ("eagle",))
    write_head(tmp_path / "other.safetensors", target, target="0" * 64)
    with refused(UsageError, f"no eagle head for llama ({OTHER}): {REMEDY}"):
        find_head(target, ("eagle",))
    write_head(tmp_path / "right.safetensors", target)
    assert find_head(target, ("eagle",)).path.name == "right.safetensors"


@pytest.mark.usefixtures("none_shipped")
@pytest.mark.parametrize("kind", ["gone", "dangling"])
def test_a_head_that_is_named_and_not_there_is_said(monkeypatch, tmp_path, native, kind):
    place = tmp_path / "none.safetensors"
    if kind == "dangling":
        place.symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("OUTPACE_HEADS", str(place))
    with refused(UsageError, f"OUTPACE_HEADS names {place}: no such file"):
        native.check(drafter="eagle")


def test_a_file_that_is_named_and_no_head_is_said_whatever_else_there_is(monkeypatch, tmp_path, target):
    other = tmp_path / "notes.txt"
    other.write_text("no head, and longer than eight bytes")
    write_head(tmp_path / "right.safetensors", target)
    monkeypatch.setenv("OUTPACE_HEADS", os.pathsep.join(map(str, (other, tmp_path / "right.safetensors"))))
    with pytest.raises(UsageError, match=f"OUTPACE_HEADS names {other}: claims a header of"):
        find_head(target, ("eagle",))


def test_published_heads_without_pytorch(monkeypatch, tmp_path, target):
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 1}')
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "outpace.heads.published_file", raising=False)
    monkeypatch.delattr("outpace.heads.published_file", raising=False)
    with refused(MissingExtra, "a published head needs the extra 'torch': pip install 'outpace[torch]'"):
        published_head(tmp_path, target)


def test_formats_and_shapes_that_are_not_written():
    with refused(UsageError, "weights of a head can be Q8_0, Q4_1, got 'Q2_K'"):
        quantise(np.zeros((1, 32), np.float32), "Q2_K")
    with refused(UsageError, "rows must have a multiple of 32 columns, got 31"):
        quantise(np.zeros((1, 31), np.float32), "Q8_0")
