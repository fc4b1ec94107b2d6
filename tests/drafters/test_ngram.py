"""N-gram drafts: the longest recent match, found in the same time however long the history."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest
from refusals import refused

from outpace.drafters.ngram import CANDIDATES, LONGEST, History, NGramDrafter, NGramSession
from outpace.errors import UsageError
from outpace.types import EMPTY, Budget, Draft, Scores, Step, Timing, Verdict


def session(tokens, min_match=1):
    return NGramSession(tokens, min_match)


def draft(tokens, length=4, **how):
    return session(tokens, **how).propose(Budget.chain(length)).tokens


def observe(one, proposed, accepted, next_token):
    tokens = (*proposed.tokens[:accepted], next_token)
    step = Step(proposed, Verdict(tuple(range(accepted)), next_token), tokens, None, Timing())
    one.observe(step, Scores(None))


def longest_match(tokens, min_match=1):
    """The definition: the longest recurring suffix up to LONGEST; of equals the most recent."""
    best = (0, -1)
    for place in range(len(tokens) - 2, -1, -1):
        length = 0
        while length < min(LONGEST, place + 1) and tokens[place - length] == tokens[-1 - length]:
            length += 1
        if length > best[0]:
            best = (length, place)
    return best if best[0] >= min_match else (0, -1)


def test_it_copies_what_followed_the_same_words():
    assert draft([5, 1, 2, 3, 4, 9, 9, 1, 2], length=2) == (3, 4)


def test_the_longest_match_wins_over_a_later_shorter_one():
    assert draft([1, 2, 3, 7, 0, 2, 3, 8, 1, 2, 3], length=1) == (7,)


def test_of_equal_matches_the_most_recent_wins():
    assert draft([1, 2, 3, 7, 0, 1, 2, 3, 8, 5, 1, 2, 3], length=1) == (8,)


def test_a_match_may_overlap_its_own_copy():
    assert draft([7, 1, 2, 1, 2], length=6) == (1, 2, 1, 2, 1, 2)
    assert draft([5, 5], length=3) == (5, 5, 5)


@pytest.mark.parametrize(("tokens", "min_match"), [([], 1), ([1], 1), ([1, 2, 3], 1), ([1, 2, 1], 2)])
def test_nothing_is_drafted_without_a_match(tokens, min_match):
    assert session(tokens, min_match).propose(Budget.chain(4)) == EMPTY


def test_matches_agree_with_the_definition():
    rng = Random(7)
    for case in range(300):
        history = History([rng.randrange(3 + case % 5) for _ in range(rng.randrange(2, 40))], 1)
        for _ in range(30):
            length, place = history.match()
            expected = longest_match(history.tokens)
            # Among many candidates for three tokens only the most recent are looked at.
            seen = sum(
                history.tokens[i - 2 : i + 1] == history.tokens[-3:] for i in range(2, len(history.tokens) - 1)
            )
            if seen <= CANDIDATES:
                assert (length, place) == expected
            else:
                assert length >= 3
            history.tokens.append(rng.randrange(3 + case % 5))


def test_long_history_is_searched_as_fast_as_short():
    """A count of steps, not a timing: the search looks at a bounded number of places."""

    class Counted(list):
        reads = 0

        def __getitem__(self, place):
            Counted.reads += 1
            return super().__getitem__(place)

    history = History([1, 2, 3] * 20000, 1)
    history.match()
    history.tokens = Counted(history.tokens)
    history.match()
    assert Counted.reads <= 3 + CANDIDATES * 2 * LONGEST + 5


def test_a_likely_path_is_drafted_further_than_an_unlikely_one():
    budget = Budget(8, 8, min_path_probability=0.3)
    long = session([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3, 4, 5, 6]).propose(budget)
    short = session([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2]).propose(budget)
    assert len(long) > len(short) > 0


def test_matches_that_fail_are_not_drafted_from_until_they_are_old():
    one = session([1, 2, 9, 4, 1, 2])
    budget = Budget(1, 1, min_path_probability=0.4)
    failures = 0
    while proposed := one.propose(budget):
        observe(one, proposed, 0, 100 + failures)
        failures += 1
        assert failures < 10
        for token in (200 + failures, 1, 2):  # a match of two tokens again
            observe(one, EMPTY, 0, token)
    for token in range(1000, 1300):
        observe(one, EMPTY, 0, token)
    for token in (1, 2):
        observe(one, EMPTY, 0, token)
    assert len(one.propose(budget)) == 1


def test_what_is_accepted_raises_the_estimate_of_its_match_length():
    one = session([1, 2, 3, 4, 5, 1, 2])
    before = [one.acceptance[n] for n in (2, 3, 4)]
    proposed = one.propose(Budget.chain(3))
    assert proposed == Draft.chain([3, 4, 5])
    observe(one, proposed, 2, 0)
    after = [one.acceptance[n] for n in (2, 3, 4)]
    assert after[0] > before[0]
    assert after[1] > before[1]
    assert after[2] < before[2]


@pytest.mark.parametrize("min_match", [0, LONGEST + 1])
def test_min_match_has_a_range(min_match):
    with refused(UsageError, f"min_match must be in [1, {LONGEST}], got {min_match}"):
        NGramDrafter(6, min_match=min_match)


def test_proposals_take_microseconds():
    rng = Random(0)
    one = session([rng.randrange(50) for _ in range(20000)])
    one.propose(Budget.chain(8))
    start = perf_counter()
    for _ in range(200):
        one.propose(Budget.chain(8))
    assert (perf_counter() - start) / 200 < 1e-3  # tens of microseconds; the bound only guards the order
