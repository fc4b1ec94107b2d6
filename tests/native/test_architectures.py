"""Every family that is supported: one tiny model of each, as GGUF, as safetensors, and in transformers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from safetensors_writer import safetensors_bytes, tiny_folder, tiny_hf_tensors

from gguf_writer import ARCHITECTURES, Tensor, tiny_metadata, tiny_model, tiny_tensors, write_gguf
from outpace.errors import BadModelFile
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.native.safetensors import open_safetensors
from outpace.native.weights import ModelConfig

each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
IDS = tuple(np.random.default_rng(0).integers(0, 320, 70).tolist())


@each_architecture
def test_safetensors_are_the_same_model_as_gguf(tmp_path: Path, name: str) -> None:
    shape = ARCHITECTURES[name]
    ours = ReferenceModel(open_gguf(tiny_model(tmp_path / "m.gguf", shape))).logits(IDS)
    theirs = ReferenceModel(open_safetensors(tiny_folder(tmp_path / "folder", shape))).logits(IDS)
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(ours).max()


def transformers_logits(folder: Path, **options: object) -> np.ndarray:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra 'torch')")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'reference')")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


@each_architecture
@pytest.mark.filterwarnings("default")
def test_the_reference_is_transformers(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path / "folder", ARCHITECTURES[name])
    expected = transformers_logits(folder, attn_implementation="eager")
    logits = ReferenceModel(open_safetensors(folder)).logits(IDS)
    assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()


def config_of(folder: Path) -> ModelConfig:
    with closing(open_safetensors(folder)) as file:
        return file.config


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"rope_scaling": LLAMA3}),
        ("llama", {"rope_parameters": LLAMA3 | {"rope_theta": 5000.0}, "rope_theta": None}),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "query_pre_attn_scalar": 20}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 20, "max_window_layers": 1}),
        ("mistral", {"sliding_window": None}),
        (
            "phi3",
            {
                "rope_scaling": {
                    "type": "longrope",
                    "short_factor": [1.0 + i / 8 for i in range(8)],
                    "long_factor": [9.0] * 8,
                },
                "original_max_position_embeddings": 100,
            },
        ),
    ],
)
@pytest.mark.filterwarnings("default")
def test_variants_of_a_family_are_transformers_too(tmp_path: Path, name: str, changes: dict[str, object]) -> None:
    folder = tiny_folder(tmp_path / "folder", ARCHITECTURES[name], **changes)
    expected = transformers_logits(folder, attn_implementation="eager")
    logits = ReferenceModel(open_safetensors(folder)).logits(IDS)
    assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()


def test_a_window_is_where_the_family_has_it(tmp_path: Path) -> None:
    gemma = open_gguf(tiny_model(tmp_path / "gemma.gguf", ARCHITECTURES["gemma3"])).config
    assert gemma.windows == (24, 24, 24, 24, 24, 0, 24)
    assert [gemma.rope_of(layer).theta for layer in (0, 5, 6)] == [1e4, 1e6, 1e4]
    mistral = open_gguf(tiny_model(tmp_path / "mistral.gguf", ARCHITECTURES["mistral"])).config
    assert mistral.windows == (24, 24)
    wide = tiny_model(tmp_path / "wide.gguf", ARCHITECTURES["mistral"], **{"llama.attention.sliding_window": 512})
    assert open_gguf(wide).config.windows == ()


def test_divisors_in_a_tensor_are_those_of_the_config(tmp_path: Path) -> None:
    shape = ARCHITECTURES["llama"]
    theirs = config_of(tiny_folder(tmp_path / "folder", shape, rope_scaling=LLAMA3))
    assert theirs.rope.divisors[0] == 1
    assert theirs.rope.divisors[-1] == 8
    tensor = Tensor((8,), "F32", np.array(theirs.rope.divisors, np.float32).tobytes())
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata(shape), tiny_tensors(shape) | {"rope_freqs.weight": tensor})
    assert np.allclose(open_gguf(path).config.rope.divisors, theirs.rope.divisors)


def test_a_stretched_context_ends_where_the_short_factors_do(tmp_path: Path) -> None:
    shape = ARCHITECTURES["phi3"]
    factors = {f"rope_factors_{kind}.weight": Tensor((8,), "F32", np.full(8, value, np.float32).tobytes())
               for kind, value in (("short", 1.5), ("long", 9))}  # fmt: skip
    keys = tiny_metadata(shape) | {"phi3.rope.scaling.original_context_length": 128}
    config = open_gguf(write_gguf(tmp_path / "m.gguf", keys, tiny_tensors(shape) | factors)).config
    assert config.context_length == 128
    assert config.rope.divisors == (1.5,) * 8
    assert config.rope.scale == pytest.approx((1 + np.log(4) / np.log(128)) ** 0.5)


def test_missing_experts_are_named(tmp_path: Path) -> None:
    shape = ARCHITECTURES["mixtral"]
    tensors = tiny_hf_tensors(shape)
    del tensors["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    folder = tiny_folder(tmp_path / "folder", shape)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    with refused(BadModelFile, f"{folder}: the tensor 'blk.1.ffn_up.2.weight' is missing"):
        open_safetensors(folder)


def test_fused_tensors_of_a_wrong_size_are_refused(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", ARCHITECTURES["phi3"], **{"phi3.feed_forward_length": 95})
    line = f"{path}: the tensor 'blk.0.ffn_up.weight' has 192 rows, the model needs 95 + 95"
    with refused(BadModelFile, line):
        open_gguf(path)
