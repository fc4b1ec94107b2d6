"""Counter-based randomness: every draw is a function of its key, and no key is used for two things.

Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") maps a 64-bit key and a 128-bit
counter to 128 random bits. The key is the request's seed. The counter's four words are

    block      token id // 4 where each token has its own noise, else 0
    place      absolute position (purposes of the plain sampler), or tokens committed when the round began
    node       0 (plain sampler), or node of the draft + 1, so that 0 is the root
    choice     choice << 8 | purpose

so two draws share bits only if seed, choice, purpose, place, node and token agree.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError
from outpace.numerics import log
from outpace.types import Array

UInt32Array: TypeAlias = npt.NDArray[np.uint32]
Float64Array: TypeAlias = npt.NDArray[np.float64]


class Purpose(IntEnum):
    """What a draw is for; each has its own domain of the counter."""

    SAMPLE = 0  # the plain sampler's Gumbel noise, which `coupled` and its drafters share
    SAMPLE_LOW = 1  # the low bits of the same
    DRAFT = 2  # a drafter's own Gumbel noise, under rules that do not share noise
    DRAFT_LOW = 3
    ACCEPT = 4
    RESIDUAL = 5
    BONUS = 6


MAX_CHOICES = 1 << 24

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(counter: tuple[npt.ArrayLike, ...], key: tuple[int, int]) -> tuple[UInt32Array, ...]:
    """Returns the four 32-bit words of Philox4x32-10 for four counter words (which broadcast) and two key words."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, dtype=np.uint64) for word in counter))
    k0, k1 = key
    mask, half = np.uint64(_MASK), np.uint64(32)
    for _ in range(_ROUNDS):
        product0 = np.uint64(_MULTIPLIERS[0]) * c0
        product1 = np.uint64(_MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (
            (product1 >> half) ^ c1 ^ np.uint64(k0),
            product1 & mask,
            (product0 >> half) ^ c3 ^ np.uint64(k1),
            product0 & mask,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return tuple(word.astype(np.uint32) for word in (c0, c1, c2, c3))


def philox4x32_once(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Returns the four words for one counter: the same in integers, several times as fast for a single draw."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def check_seed(seed: int) -> int:
    """Returns the seed as an unsigned 64-bit number (a negative one wraps); UsageError if it has more bits."""
    if not -(1 << 63) <= seed < 1 << 64:
        raise UsageError(f"seed must be a 64-bit integer, got {seed}")
    return seed & 0xFFFFFFFFFFFFFFFF


def check_choice(choice: int) -> int:
    """Returns the choice; UsageError unless it is in [0, 2^24)."""
    if not 0 <= choice < MAX_CHOICES:
        raise UsageError(f"choice must be in [0, {MAX_CHOICES}), got {choice}")
    return choice


def _key(seed: int) -> tuple[int, int]:
    return seed & _MASK, seed >> 32


def _words(
    seed: int, choice: int, purpose: int, place: int, node: int, block: npt.ArrayLike
) -> tuple[UInt32Array, ...]:
    return philox4x32((block, place, node, choice << 8 | purpose), _key(seed))


def keyed_gumbel(seed: int, choice: int, purpose: int, place: int, node: int, ids: npt.ArrayLike) -> Float64Array:
    """Returns standard Gumbel noise of each token id, -ln of its exponential noise.

    It lies in [-3.61, 36.74]; the law it gives an argmax is off by at most V 2^-53 in total variation.
    """
    return -log(keyed_exponential(seed, choice, purpose, place, node, ids))


def keyed_exponential(
    seed: int, choice: int, purpose: int, place: int, node: int, ids: npt.ArrayLike
) -> Float64Array:
    """Returns standard exponential noise of each token id, -ln u with u = (k + 1/2) / 2^52 and k of 52 random bits.

    u is never 0 or 1. The top 32 bits of k come from `purpose`, the low 20 from `purpose + 1`.
    """
    ids = np.asarray(ids, dtype=np.int64)
    blocks, lane = ids >> 2, ids & 3
    high = np.choose(lane, _words(seed, choice, purpose, place, node, blocks)).astype(np.uint64)
    low = np.choose(lane, _words(seed, choice, purpose + 1, place, node, blocks)).astype(np.uint64)
    k = (high << np.uint64(20)) | (low >> np.uint64(12))
    u = (k.astype(np.float64) + 0.5) * 2.0**-52
    return -log(u)


def gumbel(seed: int, choice: int, position: int, ids: npt.ArrayLike) -> Float64Array:
    """Returns the plain sampler's Gumbel noise of token ids at an absolute position."""
    return keyed_gumbel(check_seed(seed), check_choice(choice), Purpose.SAMPLE, position, 0, ids)


class RoundNoise:
    """The randomness of one round of one request, keyed (seed, choice, purpose, committed, node).

    committed: tokens (prompt included) committed when the round began. Every round commits at least one token, so
    what one round drew is never drawn again.
    """

    def __init__(self, seed: int, choice: int = 0, committed: int = 0) -> None:
        self._seed = check_seed(seed)
        self._choice = check_choice(choice)
        self._committed = committed

    def uniform(self, purpose: int, node: int) -> float:
        """Returns a number of [0, 1), a multiple of 2^-53, that no other (purpose, node) of this round shares."""
        counter = (0, self._committed, node + 1, self._choice << 8 | purpose)
        high, low, _, _ = philox4x32_once(counter, _key(self._seed))
        return ((high >> 5) * 2**26 + (low >> 6)) * 2.0**-53

    def accept(self, purpose: int, node: int, p: float, q: float) -> bool:
        """Returns True with probability min(1, p / q): whether u q < p. Strict: u = 0 never passes p = 0."""
        return self.uniform(purpose, node) * float(q) < float(p)

    def categorical(self, purpose: int, node: int, probs: Array) -> int:
        """Returns a token drawn from `probs` [V] (non-negative, any positive sum): the first x with u S < C(x).

        C is the cumulative sum, S its last entry. A token of probability 0 is never drawn. UsageError unless
        0 < S < inf.
        """
        cumulative = np.cumsum(np.asarray(probs, dtype=np.float64))
        total = float(cumulative[-1]) if len(cumulative) else 0.0
        if not 0 < total < np.inf:
            raise UsageError(f"probabilities must have a positive, finite sum, got {total}")
        threshold = self.uniform(purpose, node) * total
        token = int(np.searchsorted(cumulative, threshold, side="right"))
        # u S may round up to S; the last token of positive probability then stands for it.
        return min(token, int(np.searchsorted(cumulative, total, side="left")))
