"""The float side of `rejection`; its law is enumerated in tests/audit."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.audit.drafting import chain_from
from outpace.audit.enumerate import accepted_mean, random_table
from outpace.errors import UsageError
from outpace.noise import RoundNoise
from outpace.rules import Rejection, TableLaw, overlap, rejection_verify
from outpace.types import Draft


@pytest.mark.parametrize("seed", range(5))
def test_the_first_token_is_accepted_with_the_overlap(seed: int) -> None:
    p, q = random_table(seed, 4)(()), random_table(seed + 100, 4, zeros=0.3)(())
    assert accepted_mean(Rejection(), lambda _: p, chain_from(lambda _: q), 1) == overlap(p, q)


class ZeroNoise(RoundNoise):
    """Every uniform is 0, the one value where < and <= differ."""

    def uniform(self, purpose: int, node: int) -> float:
        return 0.0


def test_a_token_that_the_target_excludes_is_not_accepted_even_at_zero() -> None:
    p, q = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    verdict = rejection_verify([0], np.stack([p, p]), q[None], noise=ZeroNoise(1))
    assert (verdict.path, verdict.next_token) == ((), 1)


def test_an_empty_residual_means_the_target_itself() -> None:
    class Refuses(ZeroNoise):
        def accept(self, purpose: int, node: int, p: float, q: float) -> bool:
            return False

    p = np.array([0.25, 0.75])
    assert rejection_verify([0], np.stack([p, p]), p[None], noise=Refuses(1)).next_token == 0


def test_heads_padded_to_different_sizes_meet() -> None:
    p, q = np.array([[0.1, 0.9, 0.0, 0.0]] * 2), np.array([[0.9, 0.1]])
    for seed in range(20):
        assert rejection_verify([0], p, q, noise=RoundNoise(seed)).tokens(Draft.chain([0]))[0] in (0, 1)
        assert rejection_verify([0], q.repeat(2, 0), p[:1], noise=RoundNoise(seed)).next_token in (0, 1)


class Scripted:
    """A noise that refuses the nodes it is told to, and remembers the laws it draws from."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused
        self.drawn: list[np.ndarray] = []

    def accept(self, purpose: int, node: int, p: float, q: float) -> bool:
        return node not in self.refused

    def categorical(self, purpose: int, node: int, probs: np.ndarray) -> int:
        self.drawn.append(probs)
        return int(np.argmax(probs))


def test_a_rejected_sibling_leaves_its_residual_to_the_next() -> None:
    p = TableLaw(np.array([0.5, 0.3, 0.2]))
    first, second = TableLaw(np.array([0.2, 0.2, 0.6])), TableLaw(np.array([0.5, 0.5, 0.0]))
    noise = Scripted({0, 1})
    verdict = Rejection()(Draft((2, 1), (-1, -1), (first, second)), [p] * 3, noise)
    assert (verdict.path, verdict.next_token) == ((), 0)
    assert noise.drawn[0] == pytest.approx([1, 0, 0])  # norm(0.3, 0.1, 0) less (0.5, 0.5, 0)


def test_descends_below_the_sibling_that_is_accepted() -> None:
    p = TableLaw(np.array([0.5, 0.3, 0.2]))
    draft = Draft((2, 1, 0), (-1, -1, 1), (None,) * 3)
    assert Rejection()(draft, [p] * 4, Scripted({0})).path == (1, 2)


def test_chosen_duplicates_are_legal() -> None:
    p = TableLaw(np.array([0.5, 0.5]))
    noise = Scripted({0, 1})
    assert Rejection()(Draft((0, 0), (-1, -1), (None, None)), [p] * 3, noise).next_token == 1
    assert noise.drawn[0].tolist() == [0, 1]


def test_probes_are_not_verified() -> None:
    draft = Draft((1, 0), (-1, -1), (None, None), probes=1)
    certain = TableLaw(np.array([0.0, 1.0]))
    verdict = Rejection()(draft, [certain, certain, certain], RoundNoise(1))
    assert (verdict.path, verdict.next_token) == ((0,), 1)


@pytest.mark.parametrize(
    ("tokens", "rows", "message"),
    [
        ([1, 2], 2, r"2 draft tokens need target_probs of shape \[3, V\], got \[2, 4\]"),
        ([1, 9], 3, r"draft tokens must be in \[0, 4\), got 9"),
    ],
)
def test_shapes_and_ids_are_checked(tokens: list[int], rows: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rejection_verify(tokens, np.full((rows, 4), 0.25), noise=RoundNoise(1))
