"""`block` and `traversal` on floats; their laws are enumerated in tests/audit."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.noise import RoundNoise
from outpace.rules import Block, Coupled, Rejection, TableLaw, Traversal
from outpace.types import Draft, Rule

BOTH: list[Rule] = [Block(), Traversal()]


def random_chain(seed: int, length: int, vocab: int = 8) -> tuple[Draft, list[TableLaw]]:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(vocab), length + 1), rng.dirichlet(np.ones(vocab), length)
    tokens = [int(rng.choice(vocab, p=law)) for law in q]
    return Draft.chain(tokens, [TableLaw(law) for law in q]), [TableLaw(law) for law in p]


@pytest.mark.parametrize("rule", BOTH, ids=lambda rule: rule.name)
def test_a_draft_from_the_targets_own_law_is_accepted_whole(rule: Rule) -> None:
    for seed in range(50):
        draft, laws = random_chain(seed, 4)
        own = Draft.chain(draft.tokens, laws[:-1])
        assert rule(own, laws, RoundNoise(seed)).path == (0, 1, 2, 3)


def test_both_give_the_same_verdict_on_a_chain_with_the_same_uniforms() -> None:
    for seed in range(200):
        draft, laws = random_chain(seed, 3)
        noise = RoundNoise(seed)
        assert Block()(draft, laws, noise).path == Traversal()(draft, laws, noise).path


@pytest.mark.parametrize("rule", BOTH, ids=lambda rule: rule.name)
def test_a_token_that_the_target_excludes_is_never_accepted(rule: Rule) -> None:
    p, q = TableLaw(np.array([0.0, 0.5, 0.5])), TableLaw(np.array([0.9, 0.1, 0.0]))
    for seed in range(100):
        verdict = rule(Draft.chain([0, 0], [q, q]), [p, p, p], RoundNoise(seed))
        assert verdict.path == ()
        assert verdict.next_token in (1, 2)


@pytest.mark.parametrize("rule", BOTH, ids=lambda rule: rule.name)
def test_greedy_laws_give_the_longest_prefix_that_is_right(rule: Rule) -> None:
    target = [TableLaw(np.eye(4)[token]) for token in (2, 0, 1, 3)]
    for tokens, accepted in (((2, 0, 1), 3), ((2, 0, 3), 2), ((2, 1, 1), 1), ((0, 0, 1), 0), ((), 0)):
        draft = Draft.chain(tokens)
        verdict = rule(draft, target, RoundNoise(5))
        assert len(verdict.path) == accepted
        assert verdict.next_token == (2, 0, 1, 3)[accepted]


def test_of_a_tree_every_rule_finds_the_longest_greedy_path() -> None:
    #     root -> 0, 1; below the second: 2, 3; below that second: 0
    draft = Draft((0, 1, 2, 3, 0), (-1, -1, 1, 1, 3), (None,) * 5)
    rows = {-1: 1, 0: 0, 1: 3, 2: 1, 3: 0, 4: 2}
    laws = [TableLaw(np.eye(4)[rows[node]]) for node in range(-1, 5)]
    for rule in (Traversal(), Rejection(), Coupled()):
        verdict = rule(draft, laws, RoundNoise(9))
        assert (verdict.path, verdict.next_token) == ((1, 3, 4), 2)


def test_a_tree_is_refused_by_block_before_any_law_is_read() -> None:
    tree = Draft((1, 2), (-1, -1), (None, None))
    with pytest.raises(UsageError, match=r"rule 'block' verifies chains only.*'traversal'"):
        Block()(tree, [], RoundNoise(1))


@pytest.mark.parametrize("rule", BOTH, ids=lambda rule: rule.name)
def test_probes_are_not_verified(rule: Rule) -> None:
    certain = TableLaw(np.array([0.0, 1.0]))
    verdict = rule(Draft((1, 0), (-1, -1), (None, None), probes=1), [certain] * 3, RoundNoise(1))
    assert (verdict.path, verdict.next_token) == ((0,), 1)


def test_a_very_long_chain_neither_overflows_nor_recurses() -> None:
    law = TableLaw(np.array([0.5, 0.5]))
    draft = Draft.chain([0] * 3000, [TableLaw(np.array([1.0, 0.0]))] * 3000)
    for rule in BOTH:
        assert len(rule(draft, [law] * 3001, RoundNoise(1)).path) < 100
