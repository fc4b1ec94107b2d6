"""Loading: what is refused before a byte of weights is read, and what a loaded model says of itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gguf_writer import Tiny, tiny_model
from outpace.errors import ModelNotFound, UsageError
from outpace.native.gguf import open_gguf
from outpace.types import EMPTY, Prompt

_native = pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native import loading  # noqa: E402
from outpace.native.loading import load_native  # noqa: E402


def changed(path: Path, **config: object) -> SimpleNamespace:
    """Returns a file whose config says something else."""
    file = open_gguf(path)
    return SimpleNamespace(
        path=file.path, config=replace(file.config, **config), tensors=dict(file.tensors), read=file.read
    )


def test_a_loaded_model_knows_its_file(tiny_qwen2: Path) -> None:
    target = load_native(tiny_qwen2, threads=1)
    assert (target.name, target.engine, target.vocab_size, target.max_length) == ("qwen2", "native", 352, 512)
    assert (target.hidden_layers, target.threads, target.bit_exact, target.scores_trees) == (2, 1, True, True)
    assert target.eos_ids == open_gguf(tiny_qwen2).config.eos_ids
    assert target.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2


def test_an_opened_file_stays_open(tiny_llama: Path) -> None:
    file = open_gguf(tiny_llama)
    load_native(file)
    assert file.read("output_norm.weight", 0, 1).size
    file.close()


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_the_files_values(tmp_path: Path, tied: bool) -> None:
    path = tiny_model(tmp_path / "model.gguf", Tiny(tied=tied))
    rows = open_gguf(path).read("token_embd.weight", 7, 1).view(np.float32)
    assert np.array_equal(load_native(path).embed([7])[0], rows)


def test_weights_are_counted_as_they_are_held(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "model.gguf", Tiny(hidden=256, ffn=512, formats=("Q4_K",), embedding="Q6_K", tied=False)
    )
    with_file = open_gguf(path)
    needed = loading.memory_needed(with_file, context=100)
    target = load_native(with_file, context=100)
    assert needed["weights"] == target.model.weight_bytes - target.model.pass_bytes + sum(
        _native.packed_bytes(t.format, t.rows, t.cols)
        for name, t in with_file.tensors.items()
        if name != "token_embd.weight"
    )
    assert needed["cache"] == 2 * target.model.page_bytes
    assert target.model.scratch_bytes <= 1.1 * needed["scratch"]


def test_a_context_beyond_the_models_is_refused(tiny_llama: Path) -> None:
    for context in (0, 513):
        with pytest.raises(UsageError, match=rf"context must be in \[1, 512\].*got {context}"):
            load_native(tiny_llama, context=context)


def test_wrong_threads_and_kernels_are_refused(tiny_llama: Path) -> None:
    for threads in (0, 1025):
        with pytest.raises(UsageError, match=r"threads must be in \[1, 1024\]"):
            load_native(tiny_llama, threads=threads)
    with pytest.raises(UsageError, match=r"portable.*got abacus"):
        load_native(tiny_llama, kernel="abacus")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        load_native(tmp_path / "absent.gguf")


@pytest.mark.embedded
def test_the_embedded_model_loads_and_answers(embedded_model: Path) -> None:
    start = time.perf_counter()
    target = load_native(embedded_model, context=64)
    print(f"loaded in {time.perf_counter() - start:.2f} s")
    session, _ = target.open(Prompt((1, 2, 3)))
    assert np.isfinite(target.score_many([(session, EMPTY)])[0].logits).all()
