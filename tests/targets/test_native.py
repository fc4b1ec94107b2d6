"""The native target: bits, prefixes, taps, memory; what every target keeps is in tests/contracts."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gguf_writer import SUPPORTED, Tiny, tiny_model
from outpace.errors import UsageError
from outpace.native.gguf import open_gguf
from outpace.native.reference import ReferenceModel
from outpace.types import EMPTY, Draft, Prompt, Verdict

_native = pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native  # noqa: E402
from outpace.targets.native import PREFILL_SLICE, NativeTarget  # noqa: E402


def wide(format: str = "Q4_K", **changes: object) -> Tiny:
    """Returns the shape of a model that the formats of 256 weights fit."""
    return Tiny(hidden=256, ffn=512, formats=(format,), embedding=format, **changes)  # type: ignore[arg-type]


def tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 320, count).tolist())


def logits_after(target: NativeTarget, ids: tuple[int, ...]) -> np.ndarray:
    session, _ = target.open(Prompt(ids))
    logits = target.score_many([(session, EMPTY)])[0].logits.copy()
    session.close()
    return logits


@pytest.fixture(scope="module")
def target(tiny_llama: Path) -> NativeTarget:
    return load_native(tiny_llama, threads=2)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("format", SUPPORTED)
def test_logits_are_near_the_reference_in_f32(tmp_path: Path, format: str, architecture: str) -> None:
    path = tiny_model(tmp_path / "model.gguf", wide(format, architecture=architecture, tied=architecture == "llama"))
    ids = tokens(24)
    target = load_native(path, threads=1)
    session, _ = target.open(Prompt(ids[:1]))
    logits = target.score_many([(session, Draft.chain(ids[1:]))])[0].logits
    expected = ReferenceModel(open_gguf(path)).logits(ids)
    # 16-bit keys and values alone move the logits by a few thousandths of their size; 8-bit activations by more.
    bound = 0.005 if format in ("F32", "F16", "BF16") else 0.05
    assert np.abs(logits - expected).max() < bound * np.abs(expected).max()


@pytest.mark.parametrize("format", SUPPORTED)
def test_every_kernel_gives_the_same_bits(tmp_path: Path, format: str) -> None:
    path = tiny_model(tmp_path / "model.gguf", wide(format))
    ids = tokens(70)
    results = [logits_after(load_native(path, threads=1, kernel=kernel), ids) for kernel in _native.kernels()]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_sessions_with_different_taps_share_a_pass(target: NativeTarget) -> None:
    ids = tokens(9)
    both, _ = target.open(Prompt(ids), taps=(1, 0))
    none, _ = target.open(Prompt(ids))
    one, _ = target.open(Prompt(ids), taps=(1,))
    scores = target.score_many([(both, EMPTY), (none, EMPTY), (one, EMPTY)])
    assert scores[1].hidden is None
    assert scores[0].hidden.shape == (1, 2, 64)
    assert np.array_equal(scores[0].hidden[:, :1], scores[2].hidden)
    assert np.array_equal(target.head(scores[2].hidden[:, 0]), scores[2].logits)


def test_the_context_holds_the_hidden_states_of_all_but_the_last_token(target: NativeTarget) -> None:
    ids = tokens(30, seed=1)
    session, context = target.open(Prompt(ids), taps=(0, 1))
    assert context.hidden.shape == (29, 2, 64)
    session.close()
    single, empty = target.open(Prompt(ids[:1]), taps=(0, 1))
    assert empty.hidden.shape == (0, 2, 64)
    scores = target.score_many([(single, Draft.chain(ids[1:]))])[0]
    assert np.array_equal(scores.hidden[:29], context.hidden)


def test_a_reused_prefix_brings_its_hidden_states(target: NativeTarget) -> None:
    ids = tokens(40, seed=2)
    _, fresh = target.open(Prompt(ids), taps=(0,))
    first, _ = target.open(Prompt(ids[:20]), taps=(0,))
    draft = Draft.chain(ids[20:25])
    target.score_many([(first, draft)])
    first.commit(draft, Verdict((0, 1, 2), 0))
    first.close()
    again, context = target.open(Prompt(ids), taps=(0,))
    assert np.array_equal(context.hidden, fresh.hidden)
    again.rewind(10, ids[10])
    again.close()
    _, context = target.open(Prompt(ids), taps=(0,))
    assert np.array_equal(context.hidden, fresh.hidden)


def test_a_prefix_without_the_taps_is_computed_again(target: NativeTarget) -> None:
    ids = tokens(40, seed=3)
    plain, _ = target.open(Prompt(ids))
    plain.close()
    _, context = target.open(Prompt(ids), taps=(1,))
    assert context.hidden.shape == (39, 1, 64)


def test_prefixes_give_way_when_the_cache_is_full(tiny_llama: Path) -> None:
    target = load_native(tiny_llama, context=512)
    for seed in range(6):
        session, _ = target.open(Prompt(tokens(200, seed=seed)))
        session.close()
    assert target.model.pages_in_use * 64 <= 512
    session, _ = target.open(Prompt(tokens(512, seed=9)))
    assert target.model.pages_in_use == 8
    session.close()


def test_more_prefixes_than_one_context_are_kept_where_there_is_room(tiny_llama: Path) -> None:
    target = load_native(tiny_llama, context=512)
    target.hold(2048)

    def reused(seed: int) -> int:
        opening = target.opening(Prompt(tokens(200, seed=seed)))
        cached = next(opening)
        opening.close()
        return cached

    for seed in range(7):
        target.open(Prompt(tokens(200, seed=seed)))[0].close()
    assert [reused(seed) for seed in range(7)] == [199] * 7
    target.hold(512)
    target.open(Prompt(tokens(200, seed=8)))[0].close()
    assert target.model.pages_in_use * 64 <= 512


def test_hidden_states_of_prefixes_have_a_bound(tiny_llama: Path) -> None:
    target = load_native(tiny_llama, context=512)
    common = tokens(400, seed=0)
    for seed in range(1, 5):  # whose pages are shared, and whose hidden states are not
        target.open(Prompt((*common, *tokens(10, seed=seed))), taps=(0,))[0].close()
    assert target._prefixes.tapped == 409


def test_generations_leave_memory_flat(target: NativeTarget) -> None:
    def pages() -> int:
        for seed in range(20):
            session, _ = target.open(Prompt(tokens(100, seed=seed)))
            draft = Draft.chain(tokens(5))
            target.score_many([(session, draft)])
            session.commit(draft, Verdict((0, 1), 1))
            session.close()
        gc.collect()
        return target.model.pages_in_use + target.model.pages_free

    before = pages()
    assert all(pages() == before for _ in range(3))


def test_a_closed_session_is_refused(target: NativeTarget) -> None:
    session, _ = target.open(Prompt((1, 2, 3)))
    session.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        target.score_many([(session, EMPTY)])
    with pytest.raises(UsageError, match="closed"):
        session.rewind(0, 1)


def test_wrong_arguments_are_refused_with_their_range(target: NativeTarget) -> None:
    for ids in ((320,), (0, -1), (2**40,)):
        with pytest.raises(UsageError, match=r"token ids must be in \[0, 320\)"):
            target.open(Prompt(ids))
    with pytest.raises(UsageError, match=r"taps are layers in \[0, 2\)"):
        target.open(Prompt((1,)), taps=(2,))
    session, _ = target.open(Prompt((1,)))
    with pytest.raises(UsageError, match=r"token ids must be in \[0, 320\), got 320"):
        target.score_many([(session, Draft.chain([320]))])
    with pytest.raises(UsageError, match="do not fit in a context of 512"):
        target.score_many([(session, Draft.chain([1] * 512))])
    with pytest.raises(UsageError, match="nothing was scored"):
        session.commit(EMPTY, Verdict((), 1))
    with pytest.raises(UsageError, match="rows and context"):
        target.profile_rows(0)
    session.close()


def test_scores_stay_valid_while_they_are_referred_to(target: NativeTarget) -> None:
    session, _ = target.open(Prompt(tokens(5)))
    first = target.score_many([(session, Draft.chain([1, 2]))])[0].logits
    kept = first.copy()
    rows = [target.score_many([(session, Draft.chain([i]))])[0].logits[1] for i in range(30)]
    assert np.array_equal(first, kept)
    assert len({row.tobytes() for row in rows}) == 30


def test_threads_of_the_caller_may_share_a_target(target: NativeTarget) -> None:
    prompts = [tokens(30 + i, seed=i) for i in range(8)]
    expected = [logits_after(target, ids) for ids in prompts]

    def work(ids: tuple[int, ...]) -> np.ndarray:
        session, _ = target.open(Prompt(ids[:10]))
        draft = Draft.chain(ids[10:])
        target.score_many([(session, draft)])
        session.commit(draft, Verdict(tuple(range(len(draft) - 1)), ids[-1]))
        return target.score_many([(session, EMPTY)])[0].logits

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for got, want in zip(pool.map(work, prompts), expected, strict=True):
                assert np.array_equal(got, want)


def test_a_long_prompt_is_prefilled_in_slices_with_the_same_bits(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "model.gguf", Tiny(context=1024))
    ids = tokens(2 * PREFILL_SLICE + 50)
    target = load_native(path, threads=2, context=1024)
    session = target.model.open()
    rows = target.model.score([(session, ids, tuple(range(-1, len(ids) - 2)))])[0][0]
    assert np.array_equal(logits_after(target, ids)[0], rows[-1])


@pytest.mark.embedded
def test_the_embedded_model_predicts_what_the_reference_does(embedded_model: Path) -> None:
    ids = tokens(24) * 2
    target = load_native(embedded_model, context=256)
    session, _ = target.open(Prompt(ids[:1]))
    logits = target.score_many([(session, Draft.chain(ids[1:]))])[0].logits
    p, q = (log_softmax(x) for x in (ReferenceModel(open_gguf(embedded_model)).logits(ids), logits))
    assert (np.exp(p) * (p - q)).sum(axis=1).mean() < 0.02


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
