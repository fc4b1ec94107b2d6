"""Rows of committed tokens, whenever they are picked out."""

from __future__ import annotations

from random import Random

import numpy as np

from outpace.targets.kept import WAITING, KeptRows


def test_rows_are_those_of_the_accepted_paths_in_order():
    chance, made = Random(4), np.random.default_rng(4)
    kept, expected = KeptRows(), []
    assert not kept
    for round_ in range(3 * WAITING):
        scored = made.normal(size=(6, 2, 8)).astype(np.float32)
        path = tuple(sorted(chance.sample(range(5), chance.randrange(4))))
        kept.add(scored, path)
        expected += [scored[0], *(scored[node + 1] for node in path)]
        pieces = kept.pieces()
        rows = [part if path is None else part[[0, *(node + 1 for node in path)]] for part, path in pieces]
        assert np.array_equal(np.concatenate(rows), np.stack(expected))
        if round_ % 7 == 3:
            assert np.array_equal(kept.joined(), np.stack(expected))
    assert kept
    assert np.array_equal(kept.joined(), np.stack(expected))


def test_what_was_there_at_first_stays_in_front():
    first = np.arange(16, dtype=np.float32).reshape(2, 1, 8)
    kept = KeptRows([first[:1], first[1:]])
    kept.add(10 + first, ())
    assert np.array_equal(kept.joined(), np.concatenate([first, 10 + first[:1]]))
