"""A target as its own draft: its first layers, and its weights at fewer bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from safetensors_writer import tiny_folder

import outpace
from gguf_writer import Tiny, tiny_model
from outpace.errors import UsageError
from outpace.registry import DRAFTERS
from outpace.types import Draft, Prompt, Target

pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native

IDS = (5, 9, 7, 300, 12, 44)
QUESTION = "the fox and the dog and the fox"


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("deep") / "deep.gguf", Tiny(layers=5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("folder") / "hf", Tiny(tied=False))


def logits(target: Target) -> np.ndarray:
    session, _ = target.open(Prompt(IDS[:1]))
    try:
        return target.score_many([(session, Draft.chain(IDS[1:]))])[0].logits.copy()
    finally:
        session.close()


@pytest.mark.parametrize("layers", [1, 3, 4])
def test_an_early_exit_says_what_the_head_says_after_that_layer(deep: Path, layers: int) -> None:
    target = load_native(deep, threads=2, exit_layer=layers)
    _, context = target.open(Prompt((*IDS, 1)), taps=(layers - 1,))
    expected = target.head(context.hidden[:, 0])
    assert np.array_equal(logits(target.early_exit()), expected)


def test_an_early_exit_reads_less_and_is_made_once(deep: Path) -> None:
    target = load_native(deep, threads=1)
    assert target.exit_layer == 1
    assert target.early_exit() is target.early_exit()
    assert target.early_exit().weight_bytes < target.weight_bytes
    assert target.early_exit().name == "deep, first 1 of 5 layers"


@pytest.mark.parametrize("layers", [0, 5, -1])
def test_an_early_exit_is_between_the_layers(deep: Path, layers: int) -> None:
    with refused(UsageError, f"exit_layer must be in [1, 4] of 5 layers, got {layers}"):
        load_native(deep, exit_layer=layers)


@pytest.mark.parametrize("drafter", ["early_exit", "quantized"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_the_plain_one(folder: Path, drafter: str, temperature: float) -> None:
    model = outpace.load(folder, threads=1, context=256)
    texts = {
        name: model.generate(QUESTION, max_tokens=40, temperature=temperature, seed=3, drafter=name, draft_length=3)
        for name in ("none", drafter)
    }
    assert texts[drafter].tokens == texts["none"].tokens
    assert texts[drafter].fault is None
    assert texts[drafter].drafted > 0


def test_a_rounded_copy_mostly_agrees(folder: Path) -> None:
    target = load_native(folder, threads=1)
    copy = target.at_fewer_bits()
    assert copy.weight_bytes < 0.3 * target.weight_bytes
    assert np.abs(logits(copy) - logits(target)).mean() < 0.6 * np.abs(logits(target)).mean()


def test_weights_that_are_small_already_are_not_rounded(tmp_path: Path, folder: Path) -> None:
    small = load_native(tiny_model(tmp_path / "q4.gguf", Tiny(formats=("Q4_1",), embedding="Q8_0")))
    line = "drafter 'quantized' needs a target of larger weights: "
    with refused(UsageError, line + "pack is for weights in F32, F16, BF16; q4.gguf holds Q4_1, Q8_0"):
        DRAFTERS.get("quantized")(small, None)
    packed = load_native(folder, pack="q4")
    with refused(UsageError, line + "hf packed to q4 has its weights at q4 already: nothing is left to round"):
        DRAFTERS.get("quantized")(packed, None)


@pytest.mark.parametrize("drafter", ["early_exit", "quantized"])
def test_another_engine_is_refused(drafter: str) -> None:
    class Foreign:
        engine = "torch"

    with refused(UsageError, f"drafter '{drafter}' needs a target on engine 'native', got 'torch'"):
        DRAFTERS.get(drafter)(Foreign(), None)
