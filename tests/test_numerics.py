"""exp2 and log against 50-digit arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np

from outpace.numerics import exp2, log

getcontext().prec = 50
LN2 = Decimal(2).ln()


def ulps(found: float, exact: Decimal) -> float:
    return float(abs(Decimal(found) - exact) / Decimal(math.ulp(float(exact))))


def test_exp2_is_within_an_ulp_and_a_quarter() -> None:
    x = np.random.default_rng(1).uniform(-60, 2, 3000)
    assert max(ulps(y, (Decimal(a) * LN2).exp()) for a, y in zip(x.tolist(), exp2(x).tolist(), strict=True)) < 1.25


def test_exp2_is_exact_on_integers_and_zero_far_below() -> None:
    n = np.arange(-1022, 1024)
    assert np.array_equal(exp2(n), np.ldexp(1.0, n))
    assert exp2([-np.inf, -1e300, -1022.5]).tolist() == [0, 0, 0]


def test_log_is_within_one_ulp() -> None:
    chance = np.random.default_rng(2)
    near_one = 1 - chance.uniform(0, 2.0 ** -chance.integers(1, 52, 2000))
    x = np.concatenate([chance.uniform(0, 1, 1000), near_one, 2.0 ** chance.uniform(-1000, 1000, 500)])
    assert max(ulps(y, Decimal(a).ln()) for a, y in zip(x.tolist(), log(x).tolist(), strict=True) if a != 1) < 1


def test_log_of_one_is_zero() -> None:
    assert log(1.0) == 0
