"""Counter-based noise: the published vectors, keys that never meet, and the edges of a uniform."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.noise import Purpose, RoundNoise, gumbel, keyed_gumbel, philox4x32, philox4x32_once

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter: tuple, key: tuple, words: tuple) -> None:
    assert tuple(int(word) for word in philox4x32(counter, key)) == words
    assert philox4x32_once(counter, key) == words


def test_every_part_of_the_key_changes_the_noise() -> None:
    ids = np.arange(100)
    base = keyed_gumbel(1, 0, Purpose.SAMPLE, 5, 0, ids)
    others = [(2, 0, 0, 5, 0), (1, 1, 0, 5, 0), (1, 0, Purpose.DRAFT, 5, 0), (1, 0, 0, 6, 0), (1, 0, 0, 5, 1)]
    others.append((1 << 32 | 1, 0, 0, 5, 0))
    for key in others:
        assert not np.intersect1d(base, keyed_gumbel(*key, ids)).size


def test_no_two_purposes_share_a_word() -> None:
    noise = [keyed_gumbel(1, choice, purpose, 3, 0, np.arange(64)) for choice in range(3) for purpose in (0, 2)]
    uniforms = [
        RoundNoise(1, choice, 3).uniform(p, node) for choice in range(3) for p in Purpose for node in range(-1, 9)
    ]
    assert len({float(g) for row in noise for g in row}) == 6 * 64
    assert len(set(uniforms)) == len(uniforms)


def test_a_tokens_noise_does_not_depend_on_which_others_are_asked_for() -> None:
    ids = np.array([7, 4095, 12, 100_001])
    assert np.array_equal(gumbel(9, 0, 4, ids), gumbel(9, 0, 4, np.arange(100_002))[ids])


def test_gumbel_noise_has_its_law() -> None:
    """100,000 draws: the distribution function exp(-exp(-g)) is met within 0.0062, the 0.1 % point."""
    g = np.sort(gumbel(3, 0, 0, np.arange(100_000)))
    steps = np.arange(1, g.size + 1) / g.size
    assert np.abs(np.exp(-np.exp(-g)) - steps).max() < 1.95 / np.sqrt(g.size)


def test_uniforms_are_multiples_of_two_to_minus_53_below_one() -> None:
    """20,000 of them, uniform within the 0.1 % point of Kolmogorov's statistic."""
    found = np.sort(
        [RoundNoise(1, 0, place).uniform(Purpose.ACCEPT, node) for place in range(200) for node in range(100)]
    )
    assert found.min() >= 0
    assert found.max() < 1
    assert np.array_equal(found * 2.0**53, np.rint(found * 2.0**53))
    assert np.abs(found - np.arange(1, found.size + 1) / found.size).max() < 1.95 / np.sqrt(found.size)


class Fixed(RoundNoise):
    def __init__(self, value: float) -> None:
        super().__init__(1)
        self._value = value

    def uniform(self, purpose: int, node: int) -> float:
        return self._value


def test_accept_is_strict() -> None:
    assert not Fixed(0.0).accept(Purpose.ACCEPT, 0, 0.0, 0.5)
    assert Fixed(0.0).accept(Purpose.ACCEPT, 0, 5e-324, 0.5)
    assert Fixed(1 - 2.0**-53).accept(Purpose.ACCEPT, 0, 0.5, 0.5)
    assert not Fixed(0.5).accept(Purpose.ACCEPT, 0, 0.25, 0.5)


def test_categorical_never_draws_a_token_of_probability_zero() -> None:
    probs = np.array([0, 0, 0.3, 0, 0.7, 0])
    assert Fixed(0.0).categorical(0, 0, probs) == 2
    assert Fixed(0.3).categorical(0, 0, probs) == 4
    assert Fixed(1 - 2.0**-53).categorical(0, 0, probs) == 4
    assert Fixed(1 - 2.0**-53).categorical(0, 0, probs * 5e-324 * 10) == 4


@pytest.mark.parametrize("probs", [[0.0, 0.0], [], [np.nan, 1.0], [np.inf, 1.0]])
def test_categorical_refuses_what_is_no_law(probs: list[float]) -> None:
    with pytest.raises(UsageError, match="positive, finite sum"):
        RoundNoise(1).categorical(0, 0, np.array(probs))


def test_any_64_bit_seed_is_taken_and_negative_ones_wrap() -> None:
    ids = np.arange(4)
    assert np.array_equal(gumbel(-1, 0, 0, ids), gumbel((1 << 64) - 1, 0, 0, ids))
    with pytest.raises(UsageError, match="seed must be a 64-bit integer, got 18446744073709551616"):
        RoundNoise(1 << 64)
    with pytest.raises(UsageError, match=r"choice must be in \[0, 16777216\), got -1"):
        RoundNoise(1, -1)
