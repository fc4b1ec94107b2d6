"""The laws along the target's texts give each rule's expectation exactly: checked by enumeration of every text."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.theory.agreement import (
    accepted_by_block_verification,
    accepted_by_token_verification,
    coupled_acceptance,
    overlap,
)
from outpace.theory.chains import Along

V = 3


def tables(seed: int, zeros: bool) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """Returns (p, q) after every prefix of up to two tokens."""
    rng = np.random.default_rng(seed)
    found = {}
    for length in range(3):
        for prefix in product(range(V), repeat=length):
            p, q = rng.dirichlet(np.ones(V), 2)
            if zeros:
                p[rng.integers(V)] = 0
                q[rng.integers(V)] = 0
            found[prefix] = p / p.sum(), q / q.sum()
    return found


def agreed(laws: dict, length: int, prefix: tuple[int, ...] = ()) -> float:
    """Returns the expected tokens that both draw with the same noise, by enumeration of the texts they agree on."""
    if len(prefix) == length:
        return 0.0
    p, q = laws[prefix]
    total = coupled_acceptance(p, q)
    for x in range(V):
        if p[x] > 0 and q[x] > 0:
            both = 1 / np.maximum(p / p[x], q / q[x]).sum()
            total += both * agreed(laws, length, (*prefix, x))
    return total


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_mean_over_the_targets_texts_is_the_expectation(seed: int, zeros: bool) -> None:
    laws, gamma = tables(seed, zeros), 3
    sums = np.zeros(3)
    for text in product(range(V), repeat=gamma - 1):
        weight = np.prod([laws[text[:i]][0][x] for i, x in enumerate(text)])
        if weight == 0:
            continue
        chain = [laws[text[:i]] for i in range(gamma)]
        found = Along([p for p, _ in chain], [q for _, q in chain], text).accepted(0, gamma)
        assert found.block >= found.rejection - 1e-12
        assert found.rejection >= found.coupled - 1e-12
        sums += weight * np.array([found.rejection, found.block, found.coupled])
    by_enumeration = [
        accepted_by_token_verification(lambda prefix: laws[prefix], gamma),
        accepted_by_block_verification(lambda prefix: laws[prefix], gamma),
        agreed(laws, gamma),
    ]
    assert sums == pytest.approx(by_enumeration, abs=1e-12)


def test_one_token_has_the_acceptance_of_its_laws() -> None:
    p, q = tables(1, False)[()]
    found = Along([p], [q], []).accepted(0, 1)
    assert (found.rejection, found.block) == pytest.approx((overlap(p, q),) * 2)
    assert found.coupled == pytest.approx(coupled_acceptance(p, q))


def test_equal_laws_accept_everything() -> None:
    p, _ = tables(2, False)[()]
    found = Along([p] * 4, [p] * 4, [0, 1, 2]).accepted(0, 4)
    assert (found.rejection, found.block, found.coupled) == pytest.approx((4, 4, 4))


def test_a_chain_inside_a_text_is_the_chain_alone() -> None:
    rng = np.random.default_rng(4)
    p, q, tokens = rng.dirichlet(np.ones(V), 6), rng.dirichlet(np.ones(V), 6), rng.integers(V, size=6).tolist()
    inside = Along(p, q, tokens).accepted(2, 3)
    assert inside == Along(p[2:5], q[2:5], tokens[2:4]).accepted(0, 3)


def test_laws_and_tokens_must_make_a_text_and_a_chain_must_lie_in_it() -> None:
    p, q = tables(3, False)[()]
    with pytest.raises(UsageError, match="law for each token"):
        Along([p, p], [q, q], [])
    for place in ((0, 0), (1, 2), (-1, 1)):
        with pytest.raises(UsageError, match="must lie in"):
            Along([p, p], [q, q], [0]).accepted(*place)
