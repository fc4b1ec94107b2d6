"""Rules that change the law: as named, within their guarantees, and only when asked for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from outpace.audit.drafting import chain_from, choosing
from outpace.audit.enumerate import accepted_mean, emitted, joint, random_table
from outpace.errors import UsageError
from outpace.noise import RoundNoise
from outpace.rules import RULES, GreedyLenience, Lenience, TableLaw, Typical
from outpace.types import Draft

P = np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize("seed", range(4))
def test_lenience_keeps_every_probability_below_p_over_l(seed: int) -> None:
    target, q, lenience = random_table(seed, 4), random_table(seed + 9, 4), Fraction(1, 3)
    law = emitted(Lenience(lenience), target, chain_from(q), (1,), 1)
    for (token,), mass in law.items():
        assert mass <= target(())[token] / lenience
    wanted = sum(min(p / lenience, q_x) for p, q_x in zip(target(()), q(()), strict=True))
    assert accepted_mean(Lenience(lenience), target, chain_from(q), 1) == wanted


def test_lenience_of_1_is_lossless() -> None:
    target, q = random_table(3), random_table(4)
    assert emitted(Lenience(Fraction(1)), target, chain_from(q), (2,), 3) == joint(target, 3)


@pytest.mark.parametrize(("lenience", "accepted"), [(1.0, 0), (0.7, 0), (0.6, 1), (0.5, 1)])
def test_greedy_lenience_accepts_what_is_nearly_the_likeliest(lenience: float, accepted: int) -> None:
    verdict = GreedyLenience(lenience)(Draft.chain([1]), [TableLaw(P)] * 2, RoundNoise(1))
    assert (len(verdict.path), verdict.next_token) == (accepted, 0)


def test_typical_accepts_above_its_threshold_only() -> None:
    flat = np.full(20, 0.05)  # exp(-H) = 1/20, so the threshold is 0.3 / 20
    sharp = np.array([0.95, 0.05, *([0.0] * 18)])
    assert Typical().accepts(flat, 7)
    assert not Typical().accepts(sharp, 1)
    assert not Typical().accepts(sharp, 2)


def test_typical_takes_the_longest_path_of_a_tree() -> None:
    draft = Draft((0, 1, 0), (-1, -1, 1), (None,) * 3)
    assert Typical()(draft, [TableLaw(P)] * 4, RoundNoise(1)).path == (1, 2)


def test_typical_emits_what_was_drafted_whatever_its_probability() -> None:
    law = emitted(Typical(), lambda _: np.array([Fraction(1, 2), Fraction(1, 2)]), choosing(lambda _: 1), (1,), 1)
    assert law == {(1,): 1}


@pytest.mark.parametrize("make", [Lenience, GreedyLenience])
def test_lenience_out_of_range_is_refused(make: type) -> None:
    for value in (0, -1, 1.5):
        with pytest.raises(UsageError, match=r"lenience must be in \(0, 1\], got"):
            make(value)
    with pytest.raises(UsageError, match="verifies chains only"):
        make()(Draft((1, 2), (-1, -1), (None, None)), [], RoundNoise(1))


def test_thresholds_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match=r"epsilon must be in \(0, 1\], got 2"):
        Typical(epsilon=2)
    with pytest.raises(UsageError, match=r"delta must be in \(0, 1\], got 0"):
        Typical(delta=0)


def test_the_default_is_lossless() -> None:
    assert next(iter(RULES.values())).lossless
