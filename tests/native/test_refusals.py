"""Every refusal of a model, word for word: its type, architecture, tokenizer or size, and what would work."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusals import refused
from safetensors_writer import safetensors_bytes, tiny_folder, tiny_hf_tensors

from gguf_writer import (
    ARCHITECTURES,
    NO_MAMBA,
    Tensor,
    Tiny,
    random_tensor,
    tiny_metadata,
    tiny_model,
    tiny_tensors,
    write_gguf,
)
from outpace.errors import BadModelFile, TooLarge, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors

FORMATS = "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16"
ENGINE_FORMATS = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS"


GGUF_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "mamba"}, NO_MAMBA),
    (
        {"llama.rope.scaling.type": "yarn"},
        "scaled rotary positions of the kind 'yarn' are not supported; linear, llama3, longrope are",
    ),
    (
        {"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_feed_forward_length": 40},
        "experts of a mixture must be a multiple of 32 wide, got 40",
    ),
    ({"llama.expert_shared_count": 1}, "the file asks for 'llama.expert_shared_count' = 1, which is not supported"),
    (
        {"llama.attn_logit_softcapping": 30.0},
        "the file asks for 'llama.attn_logit_softcapping' = 30.0, which is not supported",
    ),
    (
        {"llama.rope.dimension_count": 8},
        "llama.rope.dimension_count is 8, only the head size 16 is supported",
    ),
    (
        {"llama.attention.value_length": 32},
        "llama.attention.value_length is 32, only the head size 16 is supported",
    ),
    ({"llama.attention.causal": False}, "attention without a causal mask is not supported: this is an encoder"),
    ({"llama.tensor_data_layout": "odd"}, "the tensor data layout 'odd' is not supported; 'reference' is"),
    (
        {"llama.attention.head_count_kv": [2, 1]},
        "llama.attention.head_count_kv differs from layer to layer, which is not supported",
    ),
]


@pytest.mark.parametrize(("keys", "message"), GGUF_KEYS, ids=lambda value: next(iter(value), "") if value else "")
def test_a_key_that_would_change_the_results(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(Tiny()) | keys, tiny_tensors(Tiny()))
    with refused(Unsupported, f"{path}: {message}"):
        open_gguf(path)


GGUF_TENSORS: list[tuple[str, Tensor, str]] = [
    (
        "blk.0.attn_q_norm.weight",
        Tensor((8,), "F32", bytes(32)),
        "the tensor 'blk.0.attn_q_norm.weight' is not part of a supported llama decoder",
    ),
    (
        "blk.0.ffn_up.weight",
        Tensor((64, 2, 2), "F32", bytes(1024)),
        "the tensor 'blk.0.ffn_up.weight' has 3 dimensions; only matrices are supported",
    ),
    (
        "output_norm.weight",
        random_tensor(np.random.default_rng(0), "Q8_0", 1, 64),
        "the vector 'output_norm.weight' is stored as Q8_0; F32, F16 and BF16 are supported",
    ),
]


@pytest.mark.parametrize(("name", "tensor", "message"), GGUF_TENSORS, ids=[name for name, _, _ in GGUF_TENSORS])
def test_a_tensor_that_has_no_place(tmp_path: Path, name: str, tensor: Tensor, message: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(Tiny()), tiny_tensors(Tiny()) | {name: tensor})
    with refused(Unsupported, f"{path}: {message}"):
        open_gguf(path)


def test_a_tensor_type_of_gguf(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", Tiny(hidden=256, ffn=256, formats=("IQ3_S",)))
    line = f"{path}: tensor type IQ3_S ('blk.0.attn_q.weight') is not supported; {FORMATS} are: "
    with refused(Unsupported, line + "take a Q4_K_M or Q8_0 file"):
        open_gguf(path)


def test_a_tensor_type_that_nobody_knows(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    data, name = path.read_bytes(), b"output_norm.weight"
    kind = data.index(name) + len(name) + 4 + 8  # after the dimensions
    path.write_bytes(data[:kind] + struct.pack("<I", 99) + data[kind + 4 :])
    line = f"{path}: the tensor 'output_norm.weight' has the unknown type 99; take a Q4_K_M or Q8_0 file"
    with refused(Unsupported, line):
        open_gguf(path)


@pytest.mark.parametrize(("version", "which"), [(1, "GGUF version 1"), (0x03000000, "big-endian GGUF version 3")])
def test_a_version_of_gguf(tmp_path: Path, version: int, which: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    with refused(Unsupported, f"{path}: {which} is not supported; little-endian versions 2 and 3 are"):
        open_gguf(path)


CONFIGS: list[tuple[Tiny, dict[str, Any], str]] = [
    (Tiny(), {"model_type": "mamba"}, NO_MAMBA),
    (Tiny(), {"mlp_bias": True}, "config.json asks for mlp_bias = True, which is not supported"),
    (
        ARCHITECTURES["gemma3"],
        {"model_type": "gemma3"},
        "gemma3 with a vision part is not supported; its text part alone (gemma3_text) is, or a GGUF file",
    ),
    (
        ARCHITECTURES["gemma3"],
        {"layer_types": ["full_attention", "chunked_attention"]},
        "layer_types has 'chunked_attention'; full_attention and sliding_attention are supported",
    ),
]


@pytest.mark.parametrize(("shape", "config", "message"), CONFIGS, ids=lambda value: str(value)[:20])
def test_a_folder_that_asks_for_more(tmp_path: Path, shape: Tiny, config: dict[str, Any], message: str) -> None:
    folder = tiny_folder(tmp_path / "hf", shape, **config)
    with refused(Unsupported, f"{folder}: {message}"):
        open_safetensors(folder)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (("I8", (64,), bytes(64)), "the dtype I8; F32, F16, BF16 are supported"),
        (("Q9", (64,), bytes(64)), "the dtype 'Q9'; F32, F16, BF16 are supported"),
        (("F32", (2, 2, 16), bytes(256)), "the shape [2, 2, 16]; vectors and matrices are supported"),
    ],
    ids=["dtype", "unknown dtype", "shape"],
)
def test_a_tensor_of_safetensors(tmp_path: Path, tensor: tuple[str, tuple[int, ...], bytes], message: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    tensors = tiny_hf_tensors(Tiny()) | {"model.norm.weight": tensor}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    with refused(Unsupported, f"{folder / 'model.safetensors'}: the tensor 'model.norm.weight' has {message}"):
        open_safetensors(folder)


def test_a_tensor_of_safetensors_that_has_no_place(tmp_path: Path) -> None:
    folder, name = tiny_folder(tmp_path / "hf"), "model.layers.0.self_attn.q_norm.weight"
    tensors = tiny_hf_tensors(Tiny()) | {name: ("F32", (16,), bytes(64))}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    with refused(Unsupported, f"{folder}: the tensor {name!r} is not part of a supported llama decoder"):
        open_safetensors(folder)


class TestEngine:
    """What a file may say and the engine does not run."""

    loading = pytest.importorskip("outpace.native.loading", reason="the native engine is not built")

    def load(self, path: Path, tensor: str = "", config: dict[str, Any] | None = None, **info: Any) -> None:
        file = open_gguf(path)
        tensors = dict(file.tensors)
        if tensor:
            tensors[tensor] = replace(tensors[tensor], **info)
        other = SimpleNamespace(path=path, config=replace(file.config, **config or {}), tensors=tensors)
        self.loading.load_native(other)

    def test_an_architecture(self, tiny_llama: Path) -> None:
        with refused(Unsupported, f"{tiny_llama}: {NO_MAMBA}"):
            self.load(tiny_llama, config={"architecture": "mamba"})

    @pytest.mark.parametrize("size", [24, 528])
    def test_a_head_size(self, tiny_llama: Path, size: int) -> None:
        with refused(Unsupported, f"{tiny_llama}: the head size must be a multiple of 16 up to 512, got {size}"):
            self.load(tiny_llama, config={"head_dim": size})

    def test_a_type(self, tiny_llama: Path) -> None:
        line = f"{tiny_llama}: the tensor 'blk.1.ffn_up.weight' is stored as IQ2_S; {ENGINE_FORMATS} are supported: "
        with refused(Unsupported, line + "a Q4_K_M, Q4_0 or Q8_0 file of the model would work"):
            self.load(tiny_llama, "blk.1.ffn_up.weight", format="IQ2_S")

    def test_columns(self, tiny_llama: Path) -> None:
        line = f"{tiny_llama}: the tensor 'blk.0.attn_q.weight' has 64 columns, Q4_K needs a multiple of 256"
        with refused(Unsupported, line):
            self.load(tiny_llama, "blk.0.attn_q.weight", format="Q4_K")

    def test_a_vector(self, tiny_llama: Path) -> None:
        line = f"{tiny_llama}: the vector 'output_norm.weight' is stored as Q8_0; F32 would work"
        with refused(Unsupported, line):
            self.load(tiny_llama, "output_norm.weight", format="Q8_0")

    def test_a_size(self, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.loading, "available_memory", lambda: 1000)
        line = "llama.gguf needs 1 MB (0 MB weights, 0 MB cache, 0 MB scratch) with a context of 512, "
        with refused(TooLarge, line + "0 MB are available; a smaller context or a smaller quantisation may fit"):
            self.loading.load_native(tiny_llama)


LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [9.0] * 8}


@pytest.mark.parametrize(
    ("family", "config", "words"),
    [
        (
            "llama",
            {"rms_norm_eps": 1e-46},
            "the epsilon of the norms must be under 1, and above 0 in 32 bits, got 1e-46",
        ),
        ("llama", {"rope_theta": 0.5}, "rope_theta must be in (1, 1e12), got 0.5"),
        ("llama", {"rope_theta": 1e20}, "rope_theta must be in (1, 1e12), got 1e+20"),
        ("gemma3", {"query_pre_attn_scalar": 1e-14}, "attention_scale must be in (0, 1e6), got 1e+07"),
        (
            "phi3",
            {"rope_scaling": LONGROPE | {"attention_factor": 1.5e30}, "original_max_position_embeddings": 100},
            "a rope's scale must be in (0, 1000), got 1.5e+30",
        ),
    ],
)
def test_a_number_that_no_decoder_has_is_refused(tmp_path, family, config, words):
    loading = pytest.importorskip("outpace.native.loading")
    folder = tiny_folder(tmp_path / "hub", ARCHITECTURES[family], **config)
    with refused(BadModelFile, f"{folder}: {words}"):
        loading.load_native(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm_epsilon": 2.5}, "norm_epsilon must be in (0, 1), got 2.5"),
        ({"embedding_scale": 1e20}, "embedding_scale must be in (0, 1e6), got 1e+20"),
    ],
)
def test_the_engine_checks_numbers_that_no_file_brings_to_it(tiny_llama, changes, words):
    loading = pytest.importorskip("outpace.native.loading")
    file = open_gguf(tiny_llama)
    file.config = replace(file.config, **changes)
    with refused(BadModelFile, f"{tiny_llama}: {words}"):
        loading.load_native(file)
