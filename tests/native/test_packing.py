"""Weights rounded at load: what is rounded, how near it stays, and that it is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from safetensors_writer import safetensors_bytes, tiny_folder, tiny_hf_tensors

import outpace
from gguf_writer import ARCHITECTURES, Tiny, tiny_model
from outpace.errors import BadModelFile, UsageError
from outpace.native.dequantise import dequantise
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.native.safetensors import open_safetensors
from outpace.types import Draft, Prompt

_native = pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native, memory_needed  # noqa: E402
from outpace.native.packing import held_formats  # noqa: E402

IDS = tuple(np.random.default_rng(4).integers(0, 320, 30).tolist())


@pytest.mark.parametrize(("format", "step"), [("Q8_0", 0.006), ("Q4_0", 0.1)])
def test_rounded_weights_are_near_the_stored_ones(format: str, step: float) -> None:
    weights = np.random.default_rng(0).normal(0, 0.02, (20, 64)).astype(np.float32)
    for source, stored in (("F32", weights), ("F16", weights.astype(np.float16))):
        blocks = _native.round_weights(np.frombuffer(stored.tobytes(), np.uint8), source, format)
        error = dequantise(blocks, format, 20, 64) - weights
        assert np.sqrt((error**2).mean() / (weights**2).mean()) < step


@pytest.mark.parametrize(("pack", "bound"), [("q8", 0.06), ("q4", 0.6)])
def test_a_packed_folder_answers_nearly_alike_and_says_so(tmp_path: Path, pack: str, bound: float) -> None:
    folder = tiny_folder(tmp_path / "hf", Tiny(tied=False))
    exact = ReferenceModel(open_safetensors(folder)).logits(IDS)
    target = load_native(folder, threads=1, pack=pack)
    session, _ = target.open(Prompt(IDS[:1]))
    logits = target.score_many([(session, Draft.chain(IDS[1:]))])[0].logits
    assert np.abs(logits - exact).mean() < bound * np.abs(exact).mean()
    assert target.name == f"hf packed to {pack}"


def test_what_is_packed_and_what_stays(tmp_path: Path) -> None:
    file = open_safetensors(tiny_folder(tmp_path / "hf", ARCHITECTURES["mixtral"]))
    q4, q8 = (held_formats(file, pack) for pack in ("q4", "q8"))
    assert {q4[name] for name in q4 if name.endswith("norm.weight") or "gate_inp" in name} == {"F32"}
    assert (q4["token_embd.weight"], q4["output.weight"], q4["blk.0.attn_q.weight"]) == ("F32", "Q8_0", "Q4_0")
    assert (q8["output.weight"], q8["blk.1.ffn_down_exps.weight"]) == ("Q8_0", "Q8_0")
    tied = open_gguf(tiny_model(tmp_path / "m.gguf", Tiny(formats=("Q4_1", "BF16"), embedding="F16")))
    mixed = held_formats(tied, "q4")
    assert (mixed["token_embd.weight"], mixed["blk.0.attn_q.weight"]) == ("Q8_0", "Q4_1")
    assert mixed["blk.0.attn_k.weight"] == "Q4_0"


def test_memory_is_that_of_the_packed_weights(tmp_path: Path) -> None:
    file = open_safetensors(tiny_folder(tmp_path / "hf", Tiny(tied=False)))
    needed = memory_needed(file, 64, held_formats(file, "q8"))["weights"]
    assert needed < 0.6 * memory_needed(file, 64)["weights"]
    model = load_native(file, pack="q8").model
    assert model.weight_bytes <= needed


def test_results_name_the_packed_model(tmp_path: Path) -> None:
    model = outpace.load(tiny_folder(tmp_path / "hf"), threads=1, pack="q8")
    assert model.generate("the cat", max_tokens=3, raw=True).model == "hf packed to q8"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pack": "q5"}, "pack must be one of q4, q8, got 'q5'"),
        ({"pack": "q4", "engine": "torch"}, "pack is for engine 'native', got engine 'torch': leave one of them out"),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with refused(UsageError, message):
        outpace.load(tiny_folder(tmp_path / "hf"), **options)


def test_quantised_files_have_nothing_to_pack(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", Tiny(formats=("Q4_0",), embedding="Q8_0"))
    with refused(UsageError, "pack is for weights in F32, F16, BF16; m.gguf holds Q4_0, Q8_0"):
        load_native(path, pack="q4")


@pytest.mark.parametrize(("weight", "shown"), [(np.inf, "inf"), (-3e38, "-3e+38"), (-np.nan, "nan")])
def test_weights_that_no_scale_holds_are_an_error(tmp_path: Path, weight: float, shown: str) -> None:
    folder, tensors = tiny_folder(tmp_path / "hf"), tiny_hf_tensors(Tiny())
    name = "model.layers.0.mlp.up_proj.weight"
    values = np.frombuffer(tensors[name][2], np.float32).copy()
    values[5] = weight
    tensors[name] = (*tensors[name][:2], values.tobytes())
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    why = f"the tensor 'blk.0.ffn_up.weight' cannot be packed: a weight is {shown}, which no scale can hold"
    with refused(BadModelFile, f"{folder}: {why}"):
        load_native(folder, pack="q8")
