"""The store of prefixes: the longest common one is found, covered ones are dropped, the least used goes first."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.targets.cache import Prefix, PrefixStore, common_length


class FakeSession:
    closed = False

    def close(self) -> None:
        self.closed = True


def prefix(*tokens: int, taps: tuple[int, ...] = ()) -> Prefix:
    return Prefix(np.array(tokens, np.int32), FakeSession(), taps)  # type: ignore[arg-type]


def store_of(*prefixes: Prefix) -> PrefixStore:
    store = PrefixStore()
    for item in prefixes:
        store.add(item)
    return store


def test_common_length_counts_equal_first_elements() -> None:
    for a, b, expected in (([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 5, 3], 1), ([2], [1], 0)):
        assert common_length(np.array(a, int), np.array(b, int)) == expected


def test_the_longest_common_prefix_is_found() -> None:
    short, long = prefix(1, 2, 9), prefix(1, 2, 3, 4, 8)
    assert store_of(short, long).longest((1, 2, 3, 4, 5), ()) == (long, 4)
    assert store_of(short, long).longest((7,), ()) == (None, 0)


def test_a_prefix_serves_taps_only_when_it_has_them() -> None:
    plain, tapped = prefix(1, 2, 3), prefix(1, 2, taps=(0,))
    store = store_of(tapped, plain)
    assert len(store) == 2
    assert store.longest((1, 2, 3), (0,)) == (tapped, 2)
    assert store.longest((1, 2, 3), (1,)) == (None, 0)
    assert store.longest((1, 2, 3), ()) == (plain, 3)


def test_what_another_prefix_covers_is_dropped() -> None:
    short, long = prefix(1, 2), prefix(1, 2, 3)
    store = store_of(short, long)
    assert short.session.closed
    assert store.tokens == 3
    again = prefix(1, 2, 3)
    store.add(again)
    assert again.session.closed
    assert len(store) == 1


def test_the_least_recently_used_goes_first() -> None:
    first, second = prefix(1), prefix(2)
    store = store_of(first, second)
    store.longest((1, 5), ())
    store.drop_oldest()
    assert second.session.closed
    assert not first.session.closed


def test_an_empty_prefix_is_not_kept() -> None:
    empty = prefix()
    assert len(store_of(empty)) == 0
    assert empty.session.closed


def test_hidden_states_held_are_counted() -> None:
    tapped = prefix(1, 2, 3, taps=(0,))
    store = store_of(tapped, prefix(5, 6), prefix(1, 2, 3, 4, taps=(0,)))
    assert tapped.session.closed
    assert store.tapped == 4
    store.drop_oldest()
    assert store.tapped == 4
    store.drop_oldest()
    assert (store.tapped, len(store)) == (0, 0)


def covers(a: Prefix, b: Prefix) -> bool:
    """Whether whatever can be forked from `b` can be forked from `a`."""
    return (not b.taps or a.taps == b.taps) and common_length(a.tokens, b.tokens) == len(b.tokens)


def test_many_prefixes_are_found_and_kept_as_by_comparing_all_of_them() -> None:
    rng = np.random.default_rng(0)
    store, kept = PrefixStore(), []
    for _ in range(3000):
        tokens = rng.choice((1, 2, 40_000), rng.integers(1, 9)).tolist()
        taps = ((), (0,), (1, 2))[rng.integers(3)]
        fitting = [one for one in kept if not taps or one.taps == taps]
        longest = max((common_length(one.tokens, np.array(tokens)) for one in fitting), default=0)
        found, length = store.longest(tokens, taps)
        assert length == longest
        if found is not None:
            assert found in fitting
            kept.remove(found)
            kept.append(found)
        new = prefix(*tokens, taps=taps)
        store.add(new)
        if not any(covers(old, new) for old in kept):
            kept = [*(old for old in kept if not covers(new, old)), new]
        if len(kept) > 30:
            store.drop_oldest()
            kept.pop(0)
        assert len(store) == len(kept)
        assert all(not one.session.closed for one in kept)
        assert store.tapped == sum(len(one.tokens) for one in kept if one.taps)
