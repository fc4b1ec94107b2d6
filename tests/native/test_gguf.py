"""The GGUF reader: what it returns for a good file, and what it says about a bad one."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from gguf_writer import (
    SUPPORTED,
    Tensor,
    Tiny,
    Typed,
    gguf_bytes,
    tiny_metadata,
    tiny_model,
    tiny_tensors,
    write_gguf,
)
from outpace.errors import BadModelFile, ModelNotFound
from outpace.native.gguf import open_gguf, parse_header
from outpace.native.metadata import StringArray


def write_changed(path: Path, keys: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
    """Writes the tiny Llama with some keys and tensors replaced (None removes)."""
    metadata, weights = tiny_metadata(Tiny()) | (keys or {}), tiny_tensors(Tiny()) | (tensors or {})
    return write_gguf(
        path,
        {key: value for key, value in metadata.items() if value is not None},
        {name: tensor for name, tensor in weights.items() if tensor is not None},
    )


def test_config_of_a_llama_is_read(tiny_llama: Path) -> None:
    config = open_gguf(tiny_llama).config
    assert (config.layers, config.hidden_size, config.heads, config.kv_heads, config.head_dim) == (2, 64, 4, 2, 16)
    assert (config.ffn_size, config.vocab_size, config.context_length) == (96, 320, 512)
    assert config.rope_interleaved
    assert config.tied
    assert not config.attention_bias
    assert config.eos_ids == {0, 2}


def test_config_of_a_qwen2_is_read(tiny_qwen2: Path) -> None:
    config = open_gguf(tiny_qwen2).config
    assert (config.rope_interleaved, config.tied, config.attention_bias, config.vocab_size) == (
        False,
        False,
        True,
        352,
    )


def test_every_format_is_sized_by_its_blocks(tmp_path: Path) -> None:
    file = open_gguf(tiny_model(tmp_path / "m.gguf", Tiny(layers=3, hidden=256, ffn=512, formats=SUPPORTED)))
    assert {info.format for info in file.tensors.values()} == set(SUPPORTED)
    for name, info in file.tensors.items():
        assert file.read(name, 0, info.rows).nbytes == info.nbytes


def test_rows_are_read_where_they_lie(tiny_llama: Path) -> None:
    file = open_gguf(tiny_llama)
    written = np.frombuffer(tiny_tensors(Tiny())["blk.1.ffn_up.weight"].data, np.float32).reshape(96, 64)
    assert np.array_equal(file.read("blk.1.ffn_up.weight", 5, 3).view(np.float32).reshape(3, 64), written[5:8])


def test_metadata_keeps_every_type(tmp_path: Path) -> None:
    values = {
        "t.u8": Typed("u8", 200), "t.i8": Typed("i8", -3), "t.u16": Typed("u16", 60000), "t.i16": Typed("i16", -300),
        "t.u32": Typed("u32", 4_000_000_000), "t.i32": Typed("i32", -5), "t.u64": Typed("u64", 2**63),
        "t.i64": Typed("i64", -(2**62)), "t.f32": Typed("f32", 0.5), "t.f64": Typed("f64", 0.1), "t.bool": True,
        "t.text": "grüezi", "t.empty": Typed("arr", ("str", [])), "t.floats": Typed("arr", ("f32", [1.0, 2.0])),
        "t.nested": Typed("arr", ("arr", [("i32", [1, 2]), ("str", ["a"])])),
    }  # fmt: skip
    found = dict(open_gguf(write_changed(tmp_path / "m.gguf", values)).metadata)
    nested = found.pop("t.nested")
    assert isinstance(nested, list)
    assert isinstance(nested[1], StringArray)
    assert nested[1].strings() == ["a"]
    assert np.array_equal(found.pop("t.floats"), [1, 2])
    assert len(found.pop("t.empty")) == 0  # type: ignore[arg-type]
    for key in values.keys() & found.keys():
        assert found[key] == (values[key].value if isinstance(values[key], Typed) else values[key])


def test_version_2_is_read(tmp_path: Path) -> None:
    assert (
        open_gguf(write_gguf(tmp_path / "m", tiny_metadata(Tiny()), tiny_tensors(Tiny()), version=2)).config.layers
        == 2
    )


def test_larger_alignment_is_honoured(tmp_path: Path) -> None:
    metadata = tiny_metadata(Tiny()) | {"general.alignment": 128}
    file = open_gguf(write_gguf(tmp_path / "m", metadata, tiny_tensors(Tiny()), alignment=128))
    assert file.read("output_norm.weight", 0, 1).tobytes() == tiny_tensors(Tiny())["output_norm.weight"].data


def test_header_longer_than_the_first_read_is_read(tmp_path: Path) -> None:
    file = open_gguf(write_changed(tmp_path / "m", {"x.filler": "x" * (9 << 20)}))
    assert len(file.metadata["x.filler"]) == 9 << 20  # type: ignore[arg-type]
    assert file.read("output_norm.weight", 0, 1).tobytes() == tiny_tensors(Tiny())["output_norm.weight"].data


@pytest.mark.parametrize(
    "keys",
    [
        {"llama.rope.scaling.type": "none"},
        {"llama.attention.sliding_window": 512},
        {"llama.expert_count": 0},
        {"llama.attention.head_count_kv": [2, 2]},
        {"llama.rope.dimension_count": 16, "llama.vocab_size": 320},
        {"other.thing": 5},
    ],
)
def test_what_changes_nothing_is_accepted(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert open_gguf(write_changed(tmp_path / "m.gguf", keys)).config.kv_heads == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"llama.rope.scaling.type": [1, 2]}, "llama.rope.scaling.type must be a text, got an array of 2"),
        (
            {"llama.rope.scaling.factor": [1, 2]},
            "llama.rope.scaling.factor must be a positive number, got an array of 2",
        ),
        ({"llama.tensor_data_layout": [1, 2]}, "llama.tensor_data_layout must be a text, got an array of 2"),
        ({"llama.rope.freq_base": ["a"] * 9}, "llama.rope.freq_base must be a positive number, got an array of 9"),
        (
            {"outpace.draft.output_ids": "0"},
            "outpace.draft.output_ids must be an array of token ids, got '0'",
        ),
        (
            {"outpace.draft.output_ids": [0, 1]},
            "outpace.draft.output_ids needs an output matrix of its own, output.weight is missing",
        ),
        (
            {"tokenizer.ggml.tokens": Typed("arr", ("str", [b"\xff"] * 320))},
            "key 'tokenizer.ggml.tokens'[0] is not UTF-8",
        ),
        ({"tokenizer.ggml.tokens": 7}, "tokenizer.ggml.tokens must be an array of strings, got 7"),
        ({"general.architecture": None}, "general.architecture is missing, so nothing says what model this is"),
        ({"llama.block_count": None}, "llama.block_count must be an integer in [1, 1024], got nothing"),
        ({"llama.block_count": 0}, "llama.block_count must be an integer in [1, 1024], got 0"),
        ({"llama.block_count": True}, "llama.block_count must be an integer in [1, 1024], got True"),
        ({"llama.block_count": 3}, "the tensor 'blk.2.attn_norm.weight' is missing"),
        ({"llama.embedding_length": "64"}, "llama.embedding_length must be an integer in [1, 131072], got '64'"),
        ({"llama.attention.head_count": 5}, "5 heads cannot share 2 key-value heads evenly"),
        ({"llama.rope.freq_base": float("nan")}, "llama.rope.freq_base must be a positive number, got nan"),
        (
            {"llama.attention.layer_norm_rms_epsilon": -1.0},
            "llama.attention.layer_norm_rms_epsilon must be a positive number, got -1.0",
        ),
        (
            {"llama.attention.sliding_window": Typed("i32", -4)},
            "llama.attention.sliding_window must be a count, got -4",
        ),
        (
            {"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": [1]},
            "llama.attention.sliding_window_pattern must be 2 booleans, one a layer, got an array of 1",
        ),
        ({"llama.expert_count": 8, "llama.expert_used_count": 9}, "llama.expert_used_count must be in [1, 8], got 9"),
        ({"llama.expert_count": 8}, "llama.expert_used_count must be an integer in [1, 1024], got nothing"),
        ({"llama.feed_forward_length": 95}, "the tensor 'blk.0.ffn_gate.weight' is 96 x 64, the model needs 95 x 64"),
        ({"tokenizer.ggml.eos_token_id": 320}, "tokenizer.ggml.eos_token_id must be in [0, 320), got 320"),
        (
            {"tokenizer.ggml.tokens": ["a"] * 400, "tokenizer.ggml.token_type": None},
            "tokenizer.ggml.tokens has 400 tokens, token_embd.weight 320 rows",
        ),
        (
            {"tokenizer.ggml.token_type": [1, 2]},
            "tokenizer.ggml.token_type must be 320 integers, one a token, got an array of 2",
        ),
        ({"general.alignment": 24}, "general.alignment must be a power of two up to 65536, got 24"),
        ({"general.alignment": 0}, "general.alignment must be a power of two up to 65536, got 0"),
    ],
)
def test_keys_that_make_no_sense_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    path = write_changed(tmp_path / "m.gguf", keys)
    with refused(BadModelFile, f"{path}: {message}"):
        open_gguf(path)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            Tensor((64, 1, 1, 1, 1), "F32", bytes(256)),
            "the tensor 'output_norm.weight' has 5 dimensions, 1 to 4 make sense",
        ),
        (Tensor((), "F32", bytes(256)), "the tensor 'output_norm.weight' has 0 dimensions, 1 to 4 make sense"),
        (Tensor((0,), "F32", b""), "the tensor 'output_norm.weight' has the empty shape [0]"),
        (Tensor((33,), "Q8_0", bytes(34)), "the tensor 'output_norm.weight' has rows of 33, not a multiple of 32"),
        (
            Tensor((64,), "F32", bytes(256), offset=4),
            "the tensor 'output_norm.weight' is at 4, not a multiple of the alignment 32",
        ),
        (
            Tensor((64,), "F32", bytes(256), offset=0),
            "the tensors 'token_embd.weight' and 'output_norm.weight' overlap",
        ),
        (
            Tensor((64,), "F32", bytes(256), offset=1 << 62),
            "the tensor 'output_norm.weight' needs 256 bytes at 4611686018427387904, the file has 336608",
        ),
        (
            Tensor((1 << 60, 1 << 60), "F32", b""),
            "the tensor 'output_norm.weight' needs 5316911983139663491615228241121378304 bytes at 328704, the "
            "file has 336352",
        ),
    ],
)
def test_tensors_that_make_no_sense_are_refused(tmp_path: Path, tensor: Tensor, message: str) -> None:
    path = write_changed(tmp_path / "m.gguf", tensors={"output_norm.weight": tensor})
    with refused(BadModelFile, f"{path}: {message}"):
        open_gguf(path)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    path = write_changed(tmp_path / "m.gguf", tensors={"blk.1.attn_k.weight": None})
    with refused(BadModelFile, f"{path}: the tensor 'blk.1.attn_k.weight' is missing"):
        open_gguf(path)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Tensor((8,), "F32", bytes(32)), "rope_freqs.weight holds a number outside [0.001, 1000000]"),
        (Tensor((7,), "F32", bytes(28)), "rope_freqs.weight must be 8 numbers in F32, got 1 x 7 in F32"),
        (Tensor((8,), "F16", bytes(16)), "rope_freqs.weight must be 8 numbers in F32, got 1 x 8 in F16"),
    ],
)
def test_divisors_of_the_rotations_are_checked(tmp_path: Path, tensor: Tensor, message: str) -> None:
    path = write_changed(tmp_path / "m.gguf", tensors={"rope_freqs.weight": tensor})
    with refused(BadModelFile, f"{path}: {message}"):
        open_gguf(path)


ONE_KEY = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF file: it has 0 bytes"),
        (b"GG", "not a GGUF file: it has 2 bytes"),
        (b"GGML" + bytes(20), "not a GGUF file: it starts with b'GGML'"),
        (b"GGUF" + struct.pack("<I", 3), "the number of tensors at byte 8 needs 8 bytes, the file has 0 left"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0),
            "claims 1099511627776 tensors and 0 keys, at most 65536 of each make sense",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63),
            "claims 0 tensors and 9223372036854775808 keys, at most 65536 of each make sense",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63),
            "the name of key 0 at byte 32 claims 9223372036854775808 bytes, at most 1024 make sense",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe", "the name of key 0 at byte 32 is not UTF-8"),
        (ONE_KEY + struct.pack("<I", 99) + bytes(8), "key 'k' has the unknown type 99"),
        (
            ONE_KEY + struct.pack("<IB", 7, 2) + bytes(8),
            "key 'k' at byte 37 is a boolean of value 2",
        ),
        (
            ONE_KEY + struct.pack("<IIQ", 9, 8, 1 << 61) + bytes(64),
            "key 'k' claims 2305843009213693952 strings at byte 49, 64 bytes before the end",
        ),
        (
            ONE_KEY + struct.pack("<IIQQ", 9, 8, 3, 1 << 62) + bytes(64),
            "key 'k' at byte 49 needs 4611686018427387920 bytes, the file has 72 left",
        ),
        (
            ONE_KEY + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 90,
            "key 'k' nests more than 3 arrays, or is one of over 4096",
        ),
    ],
)
def test_broken_headers_are_refused_with_the_place(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with refused(BadModelFile, f"{tmp_path / 'm.gguf'}: {message}"):
        open_gguf(tmp_path / "m.gguf")


def test_repeated_keys_and_tensors_are_refused() -> None:
    data = gguf_bytes({"aa": 1, "ab": 2}, {}).replace(b"ab", b"aa")
    with refused(BadModelFile, "the key 'aa' appears twice"):
        parse_header(data, len(data))
    vector = Tensor((8,), "F32", bytes(32))
    data = gguf_bytes({}, {"ta": vector, "tb": vector}).replace(b"tb", b"ta")
    with refused(BadModelFile, "the tensor 'ta' appears twice"):
        parse_header(data, len(data))


def test_every_truncation_of_the_header_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    data = tiny_llama.read_bytes()
    for size in [*range(0, 400), *range(400, 12_000, 97), len(data) - 1, len(data) - 300]:
        with pytest.raises(BadModelFile):
            parse_header(data[:size], size)


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with refused(ModelNotFound, f"{tmp_path / 'absent.gguf'}: no such file"):
        open_gguf(tmp_path / "absent.gguf")


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with refused(BadModelFile, f"{path}: not a regular file"):
            open_gguf(path)
    with refused(BadModelFile, f"{tmp_path / 'loop'}: cannot be opened: {os.strerror(errno.ELOOP)}"):
        open_gguf(tmp_path / "loop")


def test_file_that_shrinks_or_changes_is_an_error(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    file = open_gguf(path)
    size = path.stat().st_size
    os.truncate(path, size - 4096)
    at = size - 256  # the last tensor's bytes begin there
    with refused(BadModelFile, f"{path}: ends at byte {at}; it had {size} when opened"):
        file.read("output_norm.weight", 0, 1)
    os.truncate(path, size)
    with refused(BadModelFile, f"{path}: was changed while in use; load the model again"):
        file.read("token_embd.weight", 0, 1)


def test_rows_outside_a_tensor_and_closed_files_are_refused(tiny_llama: Path) -> None:
    file = open_gguf(tiny_llama)
    for first, rows in ((0, 321), (320, 1), (-1, 1), (5, -1)):
        with refused(BadModelFile, f"token_embd.weight has 320 rows, asked for {first} to {first + rows}"):
            file.read("token_embd.weight", first, rows)
    file.close()
    with refused(BadModelFile, f"{tiny_llama}: read after it was closed"):
        file.read("token_embd.weight", 0, 1)


@pytest.mark.embedded
def test_embedded_model_is_described(embedded_model: Path) -> None:
    config = open_gguf(embedded_model).config
    assert (config.layers, config.hidden_size, config.heads, config.kv_heads, config.head_dim) == (30, 576, 9, 3, 64)
    assert (config.vocab_size, config.context_length, config.rope.theta) == (49152, 8192, 100000.0)
    assert config.eos_ids == {0, 2, 4}  # as llama.cpp: <|endoftext|>, <|im_end|>, <reponame>


@pytest.mark.real
def test_real_pair_is_described(real_target: Path, real_draft: Path) -> None:
    for path, layers in ((real_target, 28), (real_draft, 24)):
        config = open_gguf(path).config
        assert (config.architecture, config.layers, config.vocab_size) == ("qwen2", layers, 151936)
        assert config.eos_ids == {151643, 151645, 151662, 151663, 151664}
