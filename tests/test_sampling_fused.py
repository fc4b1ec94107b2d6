"""The fused sampler gives the readable one's tokens and probabilities, bit for bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.sampling import MAX_VOCAB, Reference, SamplingParams

_native = pytest.importorskip("outpace._native", reason="the native engine is not installed")
from outpace.sampling import Fused  # noqa: E402

TEMPERATURES = (0.0, 1e-4, 0.3, 1.0, 1.0, 1.5, 1e30, 1.7e308)
TOP_P = (1.0, 1.0, 1e-9, 0.5, 0.9, 0.99, 1 - 2**-53)
MIN_P = (0.0, 0.0, 2.0**-45, 1e-13, 0.05, 0.5, 1 - 2**-53)
SIZES = (1, 2, 5, 63, 64, 65, 130, 1000, 5000)


def rows(chance: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    normal = chance.normal(size=n) * chance.choice([0.1, 1, 3, 10])
    banned = np.where(chance.random(n) < 0.7, -np.inf, normal)
    banned[chance.integers(n)] = 0
    one = np.full(n, -np.inf)
    one[chance.integers(n)] = 1
    return {
        "normal": normal,
        "ties": np.round(normal),
        "uniform": np.zeros(n),
        "signed zeros": 0.0 * chance.choice([-1, 1], size=n),
        "banned": banned,
        "one-hot": one,
        "infinite": np.where(chance.random(n) < 0.1, np.inf, normal),
        "huge": normal * 1e36,
        "zipf": -np.log1p(chance.permutation(n)) * chance.choice([0.8, 1.2, 2]),
    }


def some_mask(chance: np.random.Generator, row: np.ndarray) -> np.ndarray:
    """Returns a mask that allows few, half or most tokens, one that the row allows among them."""
    allowed = chance.random(len(row)) < chance.choice([0.02, 0.5, 0.98])
    allowed[chance.choice(np.flatnonzero(row > -np.inf))] = True
    words = np.zeros(-(-len(row) // 32), np.uint32)
    words.view(np.uint8)[: -(-len(row) // 8)] = np.packbits(allowed, bitorder="little")
    return words


def bits(mask: np.ndarray, n: int) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), count=n, bitorder="little")


def compare(seed: int, rounds: int) -> None:
    chance = np.random.default_rng(seed)
    for _ in range(rounds):
        n = int(chance.choice(SIZES))
        params = SamplingParams(
            temperature=float(chance.choice(TEMPERATURES)),
            top_k=int(chance.choice([0, 0, 1, 2, 5, 40, n, n + 3])),
            top_p=float(chance.choice(TOP_P)),
            min_p=float(chance.choice(MIN_P)),
        )
        key = (int(chance.integers(1 << 63)), int(chance.integers(1 << 24)))
        readable, fused = Reference(params, *key), Fused(params, *key)
        for name, logits in rows(chance, n).items():
            row = logits.astype(np.float32)
            place, node = int(chance.integers(1 << 32)), int(chance.integers(1 << 32))
            for mask in (None, some_mask(chance, row)):
                for purpose in (0, 2):
                    drawn = [core.draw(row, purpose, place, node, mask) for core in (readable, fused)]
                    assert drawn[0] == drawn[1], (name, n, params, key)
                law = readable.probs(row, mask)
                assert np.array_equal(law, fused.probs(row, mask)), (name, n, params)
                assert mask is None or not law[bits(mask, n) == 0].any()


@pytest.mark.parametrize("seed", range(4))
def test_on_all_kinds_of_rows_and_parameters(seed: int) -> None:
    compare(seed, rounds=60)


@pytest.mark.parametrize("kernel", _native.kernels())
def test_on_every_instruction_set(kernel: str) -> None:
    code = "from test_sampling_fused import compare; compare(9, rounds=40)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"OUTPACE_KERNEL": kernel, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("vocab", [49_152, 151_936])
def test_on_the_vocabularies_of_real_models(vocab: int) -> None:
    chance = np.random.default_rng(3)
    row = (2.5 * chance.normal(size=vocab)).astype(np.float32)
    for params in (SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(0.8, 40, 0.95, 0.05)):
        readable, fused = Reference(params, 5, 0), Fused(params, 5, 0)
        assert [readable.draw(row, 0, place, 0) for place in range(5)] == [
            fused.draw(row, 0, place, 0) for place in range(5)
        ]
        assert np.array_equal(readable.probs(row), fused.probs(row))


def test_on_the_largest_row_whose_weights_fit() -> None:
    row = np.zeros(MAX_VOCAB, dtype=np.float32)
    for top_p in (0.5, 1 - 2**-53):
        readable, fused = Reference(SamplingParams(top_p=top_p), 5, 0), Fused(SamplingParams(top_p=top_p), 5, 0)
        assert np.array_equal(readable.probs(row), fused.probs(row))


def test_a_strided_row_is_read_as_it_is() -> None:
    rows = np.random.default_rng(4).normal(size=(100, 3)).astype(np.float32)
    params = SamplingParams()
    assert Fused(params, 1, 0).draw(rows[:, 1], 0, 0, 0) == Reference(params, 1, 0).draw(rows[:, 1], 0, 0, 0)


def test_a_mask_that_leaves_nothing_is_one_clear_error() -> None:
    row, nothing = np.array([1.0, 2.0, -np.inf], np.float32), np.array([0b100], np.uint32)
    for core in (Reference(SamplingParams(), 1, 0), Fused(SamplingParams(), 1, 0)):
        for ask in (lambda core=core: core.draw(row, 0, 1, 2, nothing), lambda core=core: core.probs(row, nothing)):
            with pytest.raises(UsageError, match="no token is left to draw"):
                ask()


def test_a_mask_too_short_for_the_row_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        Fused(SamplingParams(), 1, 0).draw(np.zeros(33, np.float32), 0, 1, 2, np.ones(1, np.uint32))
