"""Folders of safetensors: the same model as the GGUF, and nothing believed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors_writer import tiny_folder

from gguf_writer import NO_MAMBA, Tiny, tiny_model
from outpace.errors import BadModelFile, ModelNotFound, OutpaceError, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.native.safetensors import open_safetensors

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


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"model_type": "mamba"},
            Unsupported,
            NO_MAMBA,
        ),
        ({"model_type": None}, BadModelFile, "no model_type"),
        (
            {"rope_scaling": {"rope_type": "llama3"}},
            BadModelFile,
            "low_freq_factor must be a positive number, got nothing",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 1}},
            BadModelFile,
            "original_max_position_embeddings must be an integer",
        ),
        ({"rope_scaling": {"rope_type": "longrope"}}, BadModelFile, "short_factor must be 8 numbers, got nothing"),
        ({"rope_parameters": {"rope_type": "yarn"}}, Unsupported, "scaled rotary positions"),
        ({"hidden_act": "gelu"}, Unsupported, "hidden_act = 'gelu'"),
        ({"sliding_window": 64}, Unsupported, "sliding_window = 64"),
        (
            {"layer_types": ["linear_attention"]},
            Unsupported,
            "layer_types has 'linear_attention'; full_attention and",
        ),
        ({"quantization_config": {"bits": 4}}, Unsupported, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, Unsupported, "partial_rotary_factor"),
        ({"hidden_size": "64"}, BadModelFile, "hidden_size must be an integer"),
        ({"hidden_size": 128}, BadModelFile, "is 320 x 64, the model needs 320 x 128"),
        ({"num_hidden_layers": 10**9}, BadModelFile, "num_hidden_layers must be an integer in .1, 1024."),
        ({"rms_norm_eps": "small"}, BadModelFile, "rms_norm_eps must be a positive number"),
        ({"eos_token_id": 320}, BadModelFile, "eos_token_id must be in .0, 320., got 320"),
        ({"eos_token_id": "2"}, BadModelFile, "eos_token_id must be in .0, 320., got '2'"),
    ],
)
def test_wrong_configs_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[OutpaceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_safetensors(tiny_folder(tmp_path / "hf", **changes))


def _entry(**changes: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]} | changes
    text = json.dumps({"model.norm.weight": entry, "model.layers.0.input_layernorm.weight": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(512)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes"),
        (struct.pack("<Q", 1 << 60), "claims a header of 1152921504606846976 bytes"),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", "not UTF-8"),
        (struct.pack("<Q", 4) + b"[1,2", "not valid JSON"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 20000) + b"[" * 20000, "not valid JSON"),
        (struct.pack("<Q", 21) + b'{"a":1000,      "a":2}'[:21], "not valid JSON"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "'a' appears twice"),
        (struct.pack("<Q", 7) + b'{"a":1}', "is not described by an object"),
        (_entry(), "overlap"),
        (_entry(shape=[65]), "cannot be bytes 0 to 256"),
        (_entry(data_offsets=[256, 0]), "cannot be bytes 256 to 0"),
        (_entry(data_offsets=[-256, 0]), "the offsets .-256, 0."),
        (_entry(data_offsets=[0.0, 256.0]), "the offsets .0.0, 256.0."),
        (_entry(data_offsets=[True, 257]), "the offsets .True, 257."),
        (_entry(shape=[1 << 47, 1 << 47], data_offsets=[0, 1 << 47]), "cannot be bytes"),
        (_entry(shape="64"), "has the shape '64'"),
    ],
)
def test_broken_headers_are_refused_with_the_file(tmp_path: Path, data: bytes, message: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(BadModelFile, match=message) as caught:
        open_safetensors(folder)
    assert "model.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "sub/m.safetensors", "config.json", ""])
def test_index_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadModelFile, match="which is no file of this folder"):
        open_safetensors(folder)


def test_same_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "a.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    with pytest.raises(BadModelFile, match="is in another file too"):
        open_safetensors(folder)


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_missing_parts_are_named(tmp_path: Path, gone: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / gone).unlink()
    with pytest.raises(ModelNotFound, match=r"has no (config\.json|\*\.safetensors)"):
        open_safetensors(folder)
