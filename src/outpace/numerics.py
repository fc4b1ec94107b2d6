"""2^x and ln x in float64, the same bits on every machine.

Only additions, multiplications and (in `log`) one division in a stated order, each of which IEEE 754 rounds in one
way; no fused multiply-add and no libm. csrc/sampler_math.h evaluates the same expressions in the same order, so that
the readable sampler and the fused one agree to the last bit.

Error, measured against 50-digit arithmetic (tests/test_numerics.py): `exp2` below 1.25 ulp, `log` below 1.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float64Array: TypeAlias = npt.NDArray[np.float64]

LOG2_E = 1.4426950408889634
# ln 2 in two parts; the high one has 32 significant bits, so that its product with an exponent is exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
# Adding it rounds a number below 2^51 to an integer, whose bits are then the low bits of the sum.
_ROUND = 1.5 * 2.0**52
_ROUND_BITS = int(np.float64(_ROUND).view(np.int64))

# (2^f - 1) / f on [-1/2, 1/2], interpolated at 11 Chebyshev nodes: even and odd powers, highest first.
_EXP2_EVEN = tuple(
    map(
        float.fromhex,
        (
            "0x1.e9cf6bae28dfap-32",
            "0x1.b524fd8aaaf5bp-24",
            "0x1.ffcbfc65fcd1ap-17",
            "0x1.5d87fe78a5555p-10",
            "0x1.c6b08d704a0c1p-5",
            "0x1.62e42fefa39efp-1",
        ),
    )
)
_EXP2_ODD = tuple(
    map(
        float.fromhex,
        (
            "0x1.e60651f100284p-28",
            "0x1.62bfd46e250c2p-20",
            "0x1.4309130972919p-13",
            "0x1.3b2ab6fba1dd5p-7",
            "0x1.ebfbdff82c598p-3",
        ),
    )
)
_LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(10, 0, -1))

_ONE_BITS = 1023 << 52
_SQRT_HALF_BITS = int(np.float64(math.sqrt(0.5)).view(np.int64))
_MANTISSA = (1 << 52) - 1

EXP2_LOWEST = -1022.0
"""`exp2` returns 0 below this: what lies there is subnormal or 0."""


def exp2(x: npt.ArrayLike) -> Float64Array:
    """Returns 2^x for x < 1023.5 (larger ones and NaN are not for this function); 0 below `EXP2_LOWEST`.

    x = n + f with |f| <= 1/2, which is exact, and 2^f = 1 + f P(f).
    """
    x = np.asarray(x, dtype=np.float64)
    clipped = np.maximum(x, EXP2_LOWEST)
    shifted = clipped + _ROUND
    f = clipped - (shifted - _ROUND)
    z = f * f
    near_one = 1.0 + f * (_polynomial(z, _EXP2_EVEN) + f * _polynomial(z, _EXP2_ODD))
    power = ((shifted.view(np.int64) - _ROUND_BITS + 1023) << 52).view(np.float64)
    return np.where(x < EXP2_LOWEST, 0.0, near_one * power)


def log(x: npt.ArrayLike) -> Float64Array:
    """Returns ln x, for normal positive x.

    x = 2^n m with m in [sqrt(1/2), sqrt 2); f = m - 1, s = f / (2 + f), and ln m = 2 atanh s by its series to s^21.
    """
    x = np.asarray(x, dtype=np.float64)
    # Adding the distance from sqrt(1/2) to 1 carries into the exponent exactly where m would be below it.
    offset = x.view(np.int64) + (_ONE_BITS - _SQRT_HALF_BITS)
    n = ((offset >> 52) - 1023).astype(np.float64)
    m = ((offset & _MANTISSA) + _SQRT_HALF_BITS).view(np.float64)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    # 2s = f - s f, which keeps the leading term exact.
    return n * _LN2_HIGH + (f - (s * (f - z * _polynomial(z, _LOG_TERMS)) - n * _LN2_LOW))


def _polynomial(z: Float64Array, terms: tuple[float, ...]) -> Float64Array:
    value = z * terms[0] + terms[1]
    for term in terms[2:]:
        value = value * z + term
    return value
