"""What is said of a predicted answer: how many of its tokens came."""

from __future__ import annotations

import random

import pytest

from outpace.predicted import appeared


def by_the_table(a, b):
    """The longest common subsequence by its recursion."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b, 1):
            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return row[-1]


@pytest.mark.parametrize("block", [1, 3, 7, 64, 4096])
@pytest.mark.parametrize("kinds", [2, 5, 40])
def test_it_is_the_longest_common_subsequence_in_blocks_of_any_size(block, kinds):
    rng = random.Random(block * kinds)
    for _ in range(60):
        a, b = ([rng.randrange(kinds) for _ in range(rng.randrange(30))] for _ in range(2))
        assert appeared(a, b, block) == by_the_table(a, b), (a, b)


def test_order_counts_and_repeats_count_once():
    assert appeared((1, 2, 3, 4), (1, 2, 9, 4)) == 3
    assert appeared((1, 2), (2, 1)) == 1
    assert appeared((5, 5, 5), (5,)) == 1
    assert appeared((), (1,)) == appeared((1,), ()) == 0


def test_a_prediction_longer_than_a_block_is_one_prediction():
    text = [7919 * i % 50_000 for i in range(3000)]
    assert appeared(text * 4, text) == len(text)
    assert appeared([1] * 5000 + text, text) == len(text)
