"""A tree that grows from counts and a head's law: what the head is asked, and the fast form against the readable."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from refusals import refused

from outpace.contexts import GUIDED, SLOTS, DrawNoise, Growth, ReadableCounts, chances, grow, new_counts
from outpace.drafters.suffix import expected_gain
from outpace.heads.file import read_head
from outpace.heads.guide import ReadableGuide
from outpace.heads.loading import load_head
from outpace.types import Prompt
from small_heads import write_head

TEXT = tuple((37 * i + i * i) % 320 for i in range(200))
FREE = [0.0] * 12


@pytest.fixture
def head(tmp_path, native):
    return load_head(read_head(write_head(tmp_path / "head.safetensors", native.target, block=4)), native.target)


def features(native, head, end):
    session, context = native.target.open(Prompt(TEXT[:end]), head.config.taps)
    session.close()
    return np.ascontiguousarray(context.hidden)


class Told:
    """A guide that was told a law, and counts how often it looks."""

    def __init__(self, law):
        self.law, self.looks = law, 0

    def look(self):
        self.looks += 1

    def likely(self):
        return sorted(self.law, key=lambda token: -self.law[token])

    def prob(self, token):
        return self.law.get(token, 0.0)


def counted(text):
    counts = ReadableCounts(3)
    counts.feed(text)
    return counts


def test_the_law_is_the_mean_of_what_counts_and_guide_say():
    counts = counted([1, 2] * 2 + [1, 3] * 2)
    grown = grow([(counts, 0.0)], [1], 1, FREE, 8, guide=Told({3: 0.6, 9: 0.4}))
    said = dict(zip(grown.tokens, grown.probs, strict=True))
    rule = GUIDED[0]
    weight = 1 / (1 + math.exp(rule.fade - rule.guide))  # after a match of one token
    law = {3: (1 - weight) * 0.5 + weight * 0.6, 2: (1 - weight) * 0.5, 9: weight * 0.4}
    assert said == pytest.approx(dict(chances([*law.items()], 1, 1.0, rule)))


def test_the_tail_alone_is_looked_at_and_once():
    guide, counts = Told({3: 0.4}), counted([1, 2] * 50)
    assert grow([(counts, 1.0)], [1], 4, FREE, 8, guide=guide).tokens[:2] == (2, 1)
    assert grow([(counts, 1.0)], [7], 4, FREE, 8, guide=guide).tokens == (3,)
    assert guide.looks == 2


@pytest.mark.parametrize(("temperature", "shown"), [(0.0, "0"), (-1e20, "-1e+20"), (float("nan"), "nan")])
def test_a_temperature_that_no_law_has_is_refused(native, head, temperature, shown):
    scored = [(features(native, head, 4), None)]
    arguments = (head.layer.open(), scored, list(TEXT[1:4]), [], [1], 1, [0.1], (1, 1), 1.0, None)
    with refused(ValueError, f"temperature must be above 0, got {shown}"):
        head.layer.blend(*arguments, temperature, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_form_is_the_readable_one(native, head, seed):
    chance = Random(seed)
    counts, readable = new_counts(4), ReadableCounts(4)
    text = [
        chance.choice(head.draft_ids.tolist()) if chance.random() < 0.7 else chance.randrange(9) for _ in range(80)
    ]
    counts.feed(text)
    readable.feed(text)
    hidden, tokens = features(native, head, 40), list(TEXT[1:40])
    tail, depth, width = text[-6:], chance.randint(1, 5), chance.randint(1, 8)
    prices = sorted(0.05 * chance.random() for _ in range(chance.randint(1, 14)))
    noise = chance.choice([None, DrawNoise(chance.randrange(1 << 64), chance.randrange(3), 40)])
    temperature = chance.choice([0.7, 1.0])
    by_counts = grow([(readable, 2.0)], tail, depth, prices, SLOTS, 1.1, noise)
    missed = 1.0 - sum(prob for parent, prob in zip(by_counts.parents, by_counts.probs, strict=True) if parent < 0)
    session = head.layer.open()

    def blend(least_miss):
        how = (tail, depth, prices, (SLOTS, width), 1.1, noise, temperature, least_miss)
        return head.layer.blend(session, [(hidden, None)], tokens, [(counts, 2.0)], *how)

    tree, miss, gained = blend(missed + 1e-6)
    assert (Growth(*tree)[:2], gained, session.length) == (by_counts[:2], None, 0)
    assert (*tree[2], miss) == pytest.approx((*by_counts.probs, missed))
    tree, miss, gained = blend(missed - 1e-6)
    guide = ReadableGuide(head, head.layer.open(), hidden, tokens, temperature, noise)
    slow = grow([(readable, 2.0)], tail, depth, prices, width, 1.1, noise, guide)
    assert (tree[0], tree[1]) == (slow.tokens, slow.parents)
    assert tree[2] == pytest.approx(slow.probs, rel=1e-4)
    assert (miss, gained) == pytest.approx(
        (missed, expected_gain(slow, prices) - expected_gain(by_counts, prices)), abs=1e-4
    )


def test_hidden_states_are_picked_where_the_accepted_paths_are(native, head):
    hidden, tokens = features(native, head, 8), list(TEXT[1:8])
    rest, blank = hidden[4:], np.full((1, *hidden.shape[1:]), np.nan, np.float32)
    scored = [  # rows 0 to 3 as a prompt's, then a pass of three rows, its first and last accepted, and one of row 0
        (hidden[:4], None),
        (np.concatenate([rest[:1], blank, rest[1:2]]), (1,)),
        (np.concatenate([rest[2:], blank]), ()),
    ]

    def tree(scored, tokens=tokens):
        how = ([(new_counts(4), 2.0)], [], 1, FREE, (1, 8), 1.0, None, 1.0, 0.0)
        return head.layer.blend(head.layer.open(), scored, tokens, *how)

    assert tree(scored) == tree([(hidden, None)])
    with refused(ValueError, "a path's rows must be among the 3 of its pass, got row 3"):
        tree([*scored[:1], (scored[1][0], (2,)), *scored[2:]])
    with refused(ValueError, "a path's rows must be among the 3 of its pass, got row -4"):
        tree([*scored[:1], (scored[1][0], (-5,)), *scored[2:]])
    with refused(ValueError, f"hidden must have 6 rows of [{hidden.shape[1]}, {hidden.shape[2]}]"):
        tree(scored, tokens[:-1])
    with refused(ValueError, f"hidden must have 2 rows of [{hidden.shape[1]}, {hidden.shape[2]}]"):
        tree([(np.concatenate([hidden[:1], hidden[1:2]], 1), None)], tokens[:2])
