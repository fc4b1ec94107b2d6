"""Folders of safetensors: the same model as the GGUF, and nothing believed."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused
from safetensors_writer import safetensors_bytes, tiny_folder, tiny_hf_tensors

from gguf_writer import ARCHITECTURES, NO_MAMBA, Tiny, tiny_model
from outpace.errors import BadModelFile, ModelNotFound, OutpaceError, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.native.safetensors import open_safetensors
from outpace.native.textfile import MAX_BYTES

SHAPES = [Tiny(), Tiny("qwen2", vocab_size=352, tied=False), Tiny(formats=("BF16", "F16"), embedding="BF16")]


@pytest.mark.parametrize("shape", SHAPES, ids=["llama", "qwen2", "halves"])
@pytest.mark.parametrize("shards", [1, 3])
def test_folder_is_the_same_model_as_the_gguf(tmp_path: Path, shape: Tiny, shards: int) -> None:
    ours = open_gguf(tiny_model(tmp_path / "m.gguf", shape))
    theirs = open_safetensors(tiny_folder(tmp_path / "hf", shape, shards=shards))
    assert theirs.tensors.keys() == ours.tensors.keys()
    assert not theirs.config.rope_interleaved
    ids = [5, 80, 300, 12, 12, 7]
    # the same sums in another order of the head's dimensions
    np.testing.assert_allclose(ReferenceModel(theirs).logits(ids), ReferenceModel(ours).logits(ids), atol=2e-5)


def test_head_that_config_ties_is_not_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf", Tiny(tied=False), tie_word_embeddings=True)
    file = open_safetensors(folder)
    assert file.config.tied
    assert "output.weight" not in file.tensors


def test_eos_ids_come_from_both_configs(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf", eos_token_id=[2, 7])
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert open_safetensors(folder).config.eos_ids == {0, 2, 7}


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"model_type": "mamba"},
            Unsupported,
            NO_MAMBA,
        ),
        ({"rms_norm_eps": 10**400}, BadModelFile, f"rms_norm_eps must be a positive number, got 1{'0' * 59}"),
        (
            {"rms_norm_eps": 1e308},
            BadModelFile,
            "the epsilon of the norms must be under 1, and above 0 in 32 bits, got 1e+308",
        ),
        ({"rope_scaling": [1]}, BadModelFile, "rope_parameters must be an object, got [1]"),
        ({"rope_scaling": {"type": {}}}, BadModelFile, "type must be a text, got {}"),
        (
            {"rope_scaling": {"type": "linear", "factor": []}},
            BadModelFile,
            "factor must be a positive number, got []",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 1e-320}},
            BadModelFile,
            "factor must be in [0.001, 1000000], got 1e-320",
        ),
        (
            {"rope_scaling": LLAMA3 | {"factor": 1e-320}},
            BadModelFile,
            "factor must be in [0.001, 1000000], got 1e-320",
        ),
        (
            {"rope_scaling": LLAMA3 | {"low_freq_factor": 4}},
            BadModelFile,
            "low_freq_factor must be under high_freq_factor, got 4.0 and 4.0",
        ),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1, 0, 1, 1, 1, 1, 1, 1]}},
            BadModelFile,
            "short_factor must be a positive number, got 0",
        ),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9},
            BadModelFile,
            "max_window_layers must be an integer, got nothing",
        ),
        (
            {"model_type": "mistral", "sliding_window": "9"},
            BadModelFile,
            "sliding_window must be a count, got '9'",
        ),
        (
            {"model_type": "mistral", "sliding_window": 9, "layer_types": ["full_attention"]},
            BadModelFile,
            "layer_types must be 2 booleans, one a layer, got [False]",
        ),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": "2"},
            BadModelFile,
            "num_experts_per_tok must be an integer in [1, 1024], got '2'",
        ),
        ({"num_key_value_heads": 3}, BadModelFile, "4 heads cannot share 3 key-value heads evenly"),
        ({"head_dim": 15}, BadModelFile, "the head size must be even for rotary positions, got 15"),
        ({"model_type": None}, BadModelFile, "config.json has no model_type, so nothing says what model this is"),
        (
            {"rope_scaling": {"rope_type": "llama3"}},
            BadModelFile,
            "low_freq_factor must be a positive number, got nothing",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 1}},
            BadModelFile,
            "original_max_position_embeddings must be an integer in [1, 67108864], got nothing",
        ),
        ({"rope_scaling": {"rope_type": "longrope"}}, BadModelFile, "short_factor must be 8 numbers, got nothing"),
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            Unsupported,
            "scaled rotary positions of the kind 'yarn' are not supported; linear, llama3, longrope are",
        ),
        ({"hidden_act": "gelu"}, Unsupported, "config.json asks for hidden_act = 'gelu', which is not supported"),
        ({"sliding_window": 64}, Unsupported, "config.json asks for sliding_window = 64, which is not supported"),
        (
            {"layer_types": ["linear_attention"]},
            Unsupported,
            "layer_types has 'linear_attention'; full_attention and sliding_attention are supported",
        ),
        (
            {"quantization_config": {"bits": 4}},
            Unsupported,
            "config.json asks for quantization_config = {'bits': 4}, which is not supported",
        ),
        (
            {"partial_rotary_factor": 0.5},
            Unsupported,
            "config.json asks for partial_rotary_factor = 0.5, which is not supported",
        ),
        ({"hidden_size": "64"}, BadModelFile, "hidden_size must be an integer in [1, 131072], got '64'"),
        ({"hidden_size": 128}, BadModelFile, "the tensor 'token_embd.weight' is 320 x 64, the model needs 320 x 128"),
        (
            {"num_hidden_layers": 10**9},
            BadModelFile,
            "num_hidden_layers must be an integer in [1, 1024], got 1000000000",
        ),
        ({"rms_norm_eps": "small"}, BadModelFile, "rms_norm_eps must be a positive number, got 'small'"),
        ({"eos_token_id": 320}, BadModelFile, "eos_token_id must be in [0, 320), got 320"),
        ({"eos_token_id": "2"}, BadModelFile, "eos_token_id must be in [0, 320), got '2'"),
    ],
)
def test_wrong_configs_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[OutpaceError], message: str
) -> None:
    folder = tiny_folder(tmp_path / "hf", **changes)
    with refused(error, f"{folder}: {message}"):
        open_safetensors(folder)


def _entry(**changes: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]} | changes
    text = json.dumps({"model.norm.weight": entry, "model.layers.0.input_layernorm.weight": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(512)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes, a safetensors file at least 8"),
        (struct.pack("<Q", 1 << 60), "claims a header of 1152921504606846976 bytes, the file has 8"),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", "its header is not UTF-8"),
        (struct.pack("<Q", 4) + b"[1,2", "not valid JSON: Expecting ',' delimiter: line 1 column 5 (char 4)"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 20000) + b"[" * 20000, "its JSON is nested too deeply"),
        (
            struct.pack("<Q", 21) + b'{"a":1000,      "a":2}'[:21],
            "not valid JSON: Expecting ',' delimiter: line 1 column 22 (char 21)",
        ),
        (struct.pack("<Q", 16) + b'{"a":"\\ud83d"}   ', "holds half of a surrogate pair, which is no text"),
        (struct.pack("<Q", 5006) + b'{"a":' + b"1" * 5000 + b"}", "holds a number of over 4300 digits"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "not valid JSON: 'a' appears twice"),
        (struct.pack("<Q", 7) + b'{"a":1}', "the tensor 'a' is not described by an object"),
        (_entry(), "the tensors 'model.layers.0.input_layernorm.weight' and 'model.norm.weight' overlap"),
        (
            _entry(shape=[65]),
            "the tensor 'model.norm.weight' of shape [65] and dtype F32 cannot be bytes 0 to 256 of 512",
        ),
        (
            _entry(data_offsets=[256, 0]),
            "the tensor 'model.norm.weight' of shape [64] and dtype F32 cannot be bytes 256 to 0 of 512",
        ),
        (
            _entry(data_offsets=[-256, 0]),
            "the tensor 'model.norm.weight' has the shape [64] and the offsets [-256, 0]",
        ),
        (
            _entry(data_offsets=[0.0, 256.0]),
            "the tensor 'model.norm.weight' has the shape [64] and the offsets [0.0, 256.0]",
        ),
        (
            _entry(data_offsets=[True, 257]),
            "the tensor 'model.norm.weight' has the shape [64] and the offsets [True, 257]",
        ),
        (
            _entry(shape=[1 << 47, 1 << 47], data_offsets=[0, 1 << 47]),
            "the tensor 'model.norm.weight' of shape [140737488355328, 140737488355328] and dtype F32 cannot be "
            "bytes 0 to 140737488355328 of 512",
        ),
        (_entry(shape="64"), "the tensor 'model.norm.weight' has the shape '64' and the offsets [0, 256]"),
    ],
)
def test_broken_headers_are_refused_with_the_file(tmp_path: Path, data: bytes, message: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "model.safetensors").write_bytes(data)
    with refused(BadModelFile, f"{folder / 'model.safetensors'}: {message}"):
        open_safetensors(folder)


def test_a_text_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    os.truncate(folder / "config.json", MAX_BYTES + 1)
    line = f"{folder / 'config.json'}: {MAX_BYTES + 1} bytes long, at most {MAX_BYTES} make sense"
    with refused(BadModelFile, line):
        open_safetensors(folder)


def test_experts_of_several_shapes(tmp_path: Path) -> None:
    folder, name = tiny_folder(tmp_path / "hf", ARCHITECTURES["mixtral"]), "block_sparse_moe.experts.1.w1.weight"
    tensors = tiny_hf_tensors(ARCHITECTURES["mixtral"])
    tensors[f"model.layers.0.{name}"] = ("F32", (3, 64), bytes(768))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    line = "the tensors 'blk.0.ffn_gate.0.weight' and 'blk.0.ffn_gate.1.weight' differ in format or shape"
    with refused(BadModelFile, f"{folder}: {line}"):
        open_safetensors(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "sub/m.safetensors", "config.json", ""])
def test_index_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    line = f"{folder}: model.safetensors.index.json names {name!r}, which is no file of this folder"
    with refused(BadModelFile, line):
        open_safetensors(folder)


def test_same_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "a.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    line = f"{folder / 'b.safetensors'}: the tensor 'token_embd.weight' is in another file too"
    with refused(BadModelFile, line):
        open_safetensors(folder)


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_missing_parts_are_named(tmp_path: Path, gone: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / gone).unlink()
    missing = {"config.json": "config.json", "model.safetensors": "*.safetensors"}[gone]
    with refused(ModelNotFound, f"{folder}: has no {missing}"):
        open_safetensors(folder)
