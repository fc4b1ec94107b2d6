"""Every family on the native engine: near the reference, and the same bits whatever the company of a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors_writer import tiny_folder

from gguf_writer import ARCHITECTURES, SUPPORTED, tiny_model
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.native.safetensors import open_safetensors
from outpace.types import EMPTY, Draft, Prompt, Verdict

_native = pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native, memory_needed  # noqa: E402
from outpace.targets.native import NativeTarget  # noqa: E402

LENGTH = 100  # past every tiny window, and past a block of attention
IDS = tuple(np.random.default_rng(1).integers(0, 320, LENGTH).tolist())
each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def all_logits(target: NativeTarget, ids: tuple[int, ...] = IDS) -> np.ndarray:
    """Returns the logits after each token of `ids`, scored as one chain."""
    session, _ = target.open(Prompt(ids[:1]))
    logits = target.score_many([(session, Draft.chain(ids[1:]))])[0].logits.copy()
    session.close()
    return logits


@each_architecture
def test_logits_are_near_the_reference(tmp_path: Path, name: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", ARCHITECTURES[name])
    expected = ReferenceModel(open_gguf(path)).logits(IDS)
    assert np.abs(all_logits(load_native(path, threads=2)) - expected).max() < 0.005 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "format"),
    [
        *((name, format) for name in ("gemma3", "qwen3moe") for format in SUPPORTED[3:]),
        *((name, "Q4_K") for name in ARCHITECTURES if name not in ("gemma3", "qwen3moe")),
    ],
)
def test_logits_are_near_the_reference_in_every_format(tmp_path: Path, name: str, format: str) -> None:
    shape = replace(ARCHITECTURES[name], hidden=256, ffn=256, head_dim=64, formats=(format,), embedding=format)
    path = tiny_model(tmp_path / "m.gguf", shape)
    ids = IDS[:40]
    reference, logits = ReferenceModel(open_gguf(path)).logits(ids), all_logits(load_native(path, threads=2), ids)
    # Random weights make a few rows near ties, of experts or of attention, where a rounding decides much.
    error = np.abs(logits - reference).max(axis=1) / np.abs(reference).max()
    assert np.quantile(error, 0.9) < 0.05


@each_architecture
def test_safetensors_give_the_same_logits(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path / "folder", ARCHITECTURES[name])
    expected = ReferenceModel(open_safetensors(folder)).logits(IDS)
    assert np.abs(all_logits(load_native(folder, threads=1)) - expected).max() < 0.005 * np.abs(expected).max()


@each_architecture
def test_kernels_and_threads_change_no_bit(tmp_path: Path, name: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", replace(ARCHITECTURES[name], formats=("Q4_0", "Q8_0", "IQ4_NL")))
    expected = all_logits(load_native(path, threads=1))
    for kernel in _native.kernels():
        assert np.array_equal(all_logits(load_native(path, threads=1, kernel=kernel)), expected), kernel
    for threads in (2, 3):
        assert np.array_equal(all_logits(load_native(path, threads=threads)), expected), threads


@each_architecture
def test_a_row_depends_on_its_own_path_alone(tmp_path: Path, name: str) -> None:
    target = load_native(tiny_model(tmp_path / "m.gguf", ARCHITECTURES[name]), threads=2)
    expected = all_logits(target)
    # One token at a time, from a prefilled prompt on.
    session, _ = target.open(Prompt(IDS[:40]))
    for at in range(40, LENGTH):
        assert np.array_equal(target.score_many([(session, EMPTY)])[0].logits[0], expected[at - 1])
        session.commit(EMPTY, Verdict((), IDS[at]))
    session.close()
    # Prompts of any length, beside another request; the prefixes are cached by now.
    other, _ = target.open(Prompt(IDS[10:23]))
    for length in (1, 23, 24, 25, 63, 64, 65, 99):
        session, _ = target.open(Prompt(IDS[:length]))
        scores = target.score_many([(other, Draft.chain((5, 6))), (session, Draft.chain(IDS[length:]))])
        assert np.array_equal(scores[1].logits, expected[length - 1 :])
        session.close()


@each_architecture
def test_a_path_of_a_tree_is_the_chain(tmp_path: Path, name: str) -> None:
    target = load_native(tiny_model(tmp_path / "m.gguf", ARCHITECTURES[name]), threads=2)
    for start in (20, 30, 62):
        # Two branches side by side, node by node: IDS itself, and other tokens.
        count = 24
        branch = tuple((token + 1) % 320 for token in IDS[start : start + count])
        tokens = tuple(token for pair in zip(IDS[start : start + count], branch, strict=True) for token in pair)
        draft = Draft(tokens, (-1, -1, *range(2 * count - 2)), (None,) * (2 * count))
        session, _ = target.open(Prompt(IDS[:start]))
        logits = target.score_many([(session, draft)])[0].logits
        for first, path in ((1, IDS[: start + count]), (2, IDS[:start] + branch)):
            assert np.array_equal(logits[first::2], all_logits(target, path)[start:])
        # What follows a committed path is what follows the chain.
        kept = tuple(range(0, 2 * count, 2))
        session.commit(draft, Verdict(kept, IDS[start + count]))
        after = target.score_many([(session, EMPTY)])[0].logits[0]
        assert np.array_equal(after, all_logits(target, IDS[: start + count + 1])[-1])
        session.close()


@each_architecture
def test_memory_is_as_predicted(tmp_path: Path, name: str) -> None:
    file = open_gguf(tiny_model(tmp_path / "m.gguf", ARCHITECTURES[name]))
    needed, target = memory_needed(file, 128), load_native(file, threads=1)
    vectors = sum(4 * info.cols for info in file.tensors.values() if info.rows == 1)
    assert needed["weights"] >= target.model.weight_bytes - vectors
    assert target.model.pass_bytes <= target.model.weight_bytes


def test_a_pass_of_one_row_reads_the_experts_it_uses(tmp_path: Path) -> None:
    model = load_native(tiny_model(tmp_path / "m.gguf", ARCHITECTURES["mixtral"])).model
    shape = ARCHITECTURES["mixtral"]
    unread = shape.layers * 3 * shape.ffn * shape.hidden * 4 * (shape.experts - shape.experts_used)
    embedding = shape.vocab_size * shape.hidden * 4
    assert model.weight_bytes - model.pass_bytes == unread + embedding


@pytest.mark.real
def test_a_real_gemma_keeps_its_bits_past_its_window(gemma3: Path) -> None:
    ids = np.random.default_rng(0).integers(1000, 200_000, 560).tolist()
    tail = ids[545:]
    chain = list(range(-1, len(tail) - 2))

    def scored(target: NativeTarget, piece: int) -> np.ndarray:
        session = target.model.open()
        for at in range(0, 545, piece):
            target.model.prefill(session, ids[at : min(at + piece, 545)])
        return target.model.score([(session, tail, chain)])[0][0].copy()

    expected = scored(load_native(gemma3, threads=2, context=1024), 200)
    assert np.array_equal(scored(load_native(gemma3, threads=1, context=1024), 64), expected)
    for kernel in set(_native.kernels()) - {"portable"}:
        assert np.array_equal(scored(load_native(gemma3, context=1024, kernel=kernel), 545), expected), kernel
