"""Counts of what followed what, against the definition; the C++ form against the readable one."""

from __future__ import annotations

import math
from random import Random

import pytest

from outpace.contexts import (
    BY_COUNTS,
    LARGEST,
    SLOTS,
    Chances,
    Context,
    DrawNoise,
    ReadableCounts,
    chances,
    grow,
    likely,
)
from outpace.noise import gumbel

LAYER = 2.0


def counted(text, depth=3):
    counts = ReadableCounts(depth)
    counts.feed(text)
    return counts


def test_a_context_knows_what_followed_it():
    counts = counted([1, 2, 3, 1, 2, 3, 1, 2, 4])
    assert counts.table[1, 2] == Context(3, [3, 4], [2, 1])
    assert counts.table[2,].total == 3
    assert (2, 4) not in counts.table  # nothing has followed it yet


def test_feeding_in_pieces_counts_each_token_once():
    chance = Random(1)
    text = [chance.randrange(5) for _ in range(200)]
    pieces = ReadableCounts(3)
    for end in range(0, 200, 7):
        start = max(0, end - 3)
        pieces.feed(text[start : end + 7], end - start)
    assert pieces.table == counted(text).table


def test_of_equals_the_latest_comes_first():
    context = Context()
    for token in (5, 6, 7):
        context.count(token)
    assert context.tokens == [7, 6, 5]


def test_a_newcomer_takes_the_place_of_the_least_frequent():
    context = Context()
    for token in (1, 1, 2, 2, 3, 3, 4, 5):
        context.count(token)
    assert context.tokens == [3, 2, 1, 5]
    assert context.total == 8
    assert len(context.counts) == SLOTS


def test_a_full_counter_is_halved():
    context = Context()
    for token in (9, *[1] * LARGEST):
        context.count(token)
    assert context.counts == [LARGEST // 2]
    assert context.total == (LARGEST + 1) // 2


def test_longer_contexts_correct_shorter_ones():
    counts = counted([1, 2, 3, 9, 2, 4, 9, 2, 4, 1, 2])  # after 2: 3 once, 4 twice; after 1 2: 3 once
    [(first, high), (second, low)], match = likely([(counts, LAYER)], [1, 2])
    after_two = {3: 1 / 5, 4: 2 / 5}
    assert (first, second) == (3, 4)
    assert high == pytest.approx((1 + LAYER * after_two[3]) / (1 + LAYER))
    assert low == pytest.approx(LAYER * after_two[4] / (1 + LAYER))
    assert match == 2


def test_a_specific_layer_corrects_a_general_one():
    store, own = counted([1, 2] * 10), counted([1, 3])
    assert likely([(store, LAYER), (own, LAYER)], [1])[0][0][0] == 2
    assert likely([(store, LAYER), (counted([1, 3] * 20), LAYER)], [1])[0][0][0] == 3


def test_a_tree_grows_by_path_probability_and_stops_at_the_price():
    chance = Random(3)
    counts = counted([chance.randrange(4) for _ in range(300)])
    grown = grow([(counts, LAYER)], [0, 1, 2], 8, [0.02] * 30, SLOTS)
    paths = []
    for parent, prob in zip(grown.parents, grown.probs, strict=True):
        paths.append(prob * (1.0 if parent < 0 else paths[parent]))
    assert paths == sorted(paths, reverse=True)
    assert min(paths) >= 0.02
    assert len({*zip(grown.parents, grown.tokens, strict=True)}) == len(grown.tokens) > 5
    dear = [0.02] * 3 + [1.1] * 20
    assert grow([(counts, LAYER)], [0, 1, 2], 8, dear, SLOTS).tokens == grown.tokens[:3]


def test_width_one_is_a_chain_and_depth_is_kept():
    counts = counted([1, 2, 3] * 10)
    assert grow([(counts, LAYER)], [1], 5, [0.0] * 9, 1).parents == (-1, 0, 1, 2, 3)


def test_noise_says_which_of_equals_will_be_drawn():
    """Under the law that the candidates have, the first of the contest is the draw itself."""
    law, right = dict.fromkeys(range(4), 0.25), 0
    for place in range(200):
        noise = DrawNoise(7, 0, place)
        drawn = max(law, key=lambda token: math.log(law[token]) + gumbel(7, 0, noise.place, [token])[0])
        ranked = chances([*law.items()], 8, 1.0, BY_COUNTS[1], noise)
        right += ranked[0][0] == drawn
        assert sum(prob for _, prob in ranked) < 1
    assert right == 200


def test_a_law_that_is_believed_stays_as_it_is():
    exact = Chances(1.0, 0.0, 0.0, 1.0, 1.0)
    assert chances([(3, 0.6), (4, 0.4)], 0, 1.0, exact) == [(3, 0.6), (4, 0.4)]


def test_what_is_not_listed_has_its_due_the_less_the_longer_the_match():
    ranked, rule = [(3, 0.6), (4, 0.2)], BY_COUNTS[0]

    def listed(match, odds=1.0):
        return sum(chance for _, chance in chances(ranked, match, odds, rule))

    by_match = [listed(match) for match in range(9)]
    assert by_match == sorted(by_match)
    assert by_match[0] == pytest.approx(0.8 / (0.8 + rule.unlisted * 0.2**rule.rest))
    better = listed(2, odds=3.0)
    assert better / (1 - better) == pytest.approx(3 * by_match[2] / (1 - by_match[2]))


def test_nothing_known_gives_nothing():
    assert grow([(ReadableCounts(2), LAYER)], [1], 5, [0.0] * 5, SLOTS).tokens == ()
    assert grow([(counted([1, 2]), LAYER)], [7], 5, [0.0] * 5, SLOTS).tokens == ()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"depth must be in \[1, 32\], got 0"):
        ReadableCounts(0)
    with pytest.raises(ValueError, match="token ids must be at least 0, got -1"):
        ReadableCounts(2).feed([1, -1])


@pytest.mark.parametrize("seed", range(30))
def test_the_fast_form_is_the_readable_one_to_the_bit(seed):
    native = pytest.importorskip("outpace._native", reason="the native engine is not installed")
    chance = Random(seed)
    vocabulary, depths = chance.choice([2, 5, 40]), [chance.randint(1, 9) for _ in range(2)]
    readable = [ReadableCounts(depth) for depth in depths]
    fast = [native.ContextCounts(depth) for depth in depths]
    text = [0]
    for _ in range(25):
        piece = [chance.randrange(vocabulary) for _ in range(chance.randint(1, 40))]
        for layer in range(2):
            start = chance.randrange(len(piece))
            readable[layer].feed(piece, start)
            fast[layer].feed(piece, start)
        text = (text + piece)[-chance.randint(1, 20) :]
        depth, nodes, width = chance.randint(0, 9), chance.randint(0, 20), chance.randint(1, SLOTS)
        prices = sorted(0.3 * chance.random() ** 3 for _ in range(nodes))
        priors, odds = [chance.uniform(0.5, 5) for _ in range(2)], chance.uniform(0.5, 1.5)
        noise = chance.choice([None, DrawNoise(chance.randrange(1 << 64), chance.randrange(3), len(text))])
        slow = grow([*zip(readable, priors, strict=True)], text, depth, prices, width, odds, noise)
        assert native.grow([*zip(fast, priors, strict=True)], text, depth, prices, width, odds, noise) == tuple(slow)
    assert [counts.contexts for counts in fast] == [counts.contexts for counts in readable]


def test_the_fast_form_halves_full_counters_too():
    native = pytest.importorskip("outpace._native", reason="the native engine is not installed")
    text = [1, 2, 1, 3, *[1, 2] * 70000]
    readable, fast = ReadableCounts(2), native.ContextCounts(2)
    readable.feed(text)
    fast.feed(text)
    assert native.grow([(fast, 2.0)], [1], 1, [0.0] * 4, 4) == tuple(grow([(readable, 2.0)], [1], 1, [0.0] * 4, 4))


def test_memory_is_bounded_by_the_tokens():
    native = pytest.importorskip("outpace._native", reason="the native engine is not installed")
    counts, chance, depth = native.ContextCounts(8), Random(2), 8
    for _ in range(20):  # the worst case: no context comes twice
        counts.feed([chance.randrange(1 << 30) for _ in range(1000)])
    assert counts.nbytes / 20_000 <= depth * (40 + 16) + 4


def test_the_fast_form_refuses_what_the_readable_one_does():
    native = pytest.importorskip("outpace._native", reason="the native engine is not installed")
    with pytest.raises(ValueError, match=r"depth must be in \[1, 32\], got 40"):
        native.ContextCounts(40)
    with pytest.raises(ValueError, match="token ids must be at least 0, got -1"):
        native.ContextCounts(2).feed([1, -1])
    with pytest.raises(ValueError, match=r"width must be in \[1, 8\], got 9"):
        native.grow([(native.ContextCounts(2), 1.0)], [1], 1, [0.0], 9)
