"""Every instruction set that this machine runs gives the same scores and the same texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import outpace
from gguf_writer import Tiny, tiny_model
from outpace.types import EMPTY, Draft, Prompt

_native = pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native  # noqa: E402
from outpace.targets.native import NativeTarget  # noqa: E402

SETS = _native.kernels()
FORMATS = ("Q4_K", "Q6_K")  # of the layers, by turns; the embedding is Q8_0


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Tiny(hidden=256, ffn=512, formats=FORMATS, embedding="Q8_0")
    return tiny_model(tmp_path_factory.mktemp("sets") / "model.gguf", shape)


def scores(target: NativeTarget) -> Iterator[np.ndarray]:
    """Yields the logits of a prompt, of a chain after it, of a tree, and of two requests in one pass."""
    ids = tuple(np.random.default_rng(0).integers(0, 320, 90).tolist())
    one, _ = target.open(Prompt(ids))
    two, _ = target.open(Prompt(ids[:7]))
    tree = Draft(tokens=(5, 6, 7, 8, 9), parents=(-1, 0, 0, -1, 3), laws=(None,) * 5)
    for work in (
        [(one, EMPTY)],
        [(one, Draft.chain(ids[:11]))],
        [(one, tree)],
        [(one, Draft.chain((1, 2))), (two, tree)],
    ):
        for result in target.score_many(work):
            yield result.logits.copy()
    one.close()
    two.close()


def test_chains_trees_slices_and_batches_have_the_same_bits(path: Path) -> None:
    expected = list(scores(load_native(path, threads=1, kernel="portable")))
    for kernel in SETS:
        for threads in (1, 2):
            for got, wanted in zip(scores(load_native(path, threads=threads, kernel=kernel)), expected, strict=True):
                assert np.array_equal(got, wanted), (kernel, threads)


def test_texts_are_the_same_with_and_without_drafts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = set()
    for kernel in SETS:
        monkeypatch.setenv("OUTPACE_KERNEL", kernel)
        model = outpace.load(path, draft=path, threads=1)
        for drafter in ("none", "ngram", "model"):
            result = model.generate("the cat", drafter=drafter, temperature=1.0, seed=7, max_tokens=24)
            texts.add(result.tokens)
    assert len(texts) == 1


@pytest.mark.embedded
def test_the_embedded_model_says_the_same(embedded_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = set()
    for kernel in SETS[:-1]:  # without the portable one, which would take minutes
        monkeypatch.setenv("OUTPACE_KERNEL", kernel)
        model = outpace.load(embedded_model, threads=2)
        texts.add(model.generate("The capital of France", temperature=1.0, seed=3, max_tokens=24).tokens)
    assert len(texts) <= 1
