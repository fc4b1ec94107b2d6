"""The enumerator itself: exact, and aware of a uniform that is used twice."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from outpace.audit.drafting import SIBLINGS, chain_from, fixed_tree, tree_from, without
from outpace.audit.enumerate import (
    ExactNoise,
    Uniforms,
    accepted_mean,
    coupled_mean,
    fractions,
    joint,
    law_of,
    random_table,
    total_variation,
)
from outpace.errors import UsageError
from outpace.rules import Block, Coupled, Rejection, Traversal

HALF = Fraction(1, 2)


def test_a_uniform_read_twice_is_the_same_uniform() -> None:
    law = law_of(lambda u: (u.below("a", HALF), u.below("a", Fraction(1, 4))))
    assert law == {(True, True): Fraction(1, 4), (True, False): Fraction(1, 4), (False, False): HALF}


def test_two_uniforms_are_independent() -> None:
    assert law_of(lambda u: u.below("a", HALF) and u.below("b", HALF)) == {
        True: Fraction(1, 4),
        False: Fraction(3, 4),
    }


def test_a_choice_has_the_law_it_was_given() -> None:
    assert law_of(lambda u: u.choose("a", fractions([1, 0, 3]))) == {0: Fraction(1, 4), 2: Fraction(3, 4)}


def test_nothing_can_be_chosen_from_nothing() -> None:
    with pytest.raises(UsageError, match="positive sum, got 0"):
        Uniforms([]).choose("a", np.array([Fraction(0)] * 2))


def test_acceptance_of_a_token_without_mass_needs_mass_in_p() -> None:
    noise = ExactNoise(Uniforms([]), 0)
    assert noise.accept(4, 0, Fraction(1, 9), Fraction(0))
    assert not noise.accept(4, 0, Fraction(0), Fraction(0))


def test_the_joint_law_sums_to_1_and_may_start_anywhere() -> None:
    table = random_table(1, zeros=0.4)
    assert sum(joint(table, 3).values()) == 1
    assert all(tokens[:1] == (1,) for tokens in joint(table, 3, (1,)))


def test_total_variation_of_disjoint_laws_is_1() -> None:
    assert total_variation({1: Fraction(1)}, {2: Fraction(1)}) == 1


def test_siblings_without_replacement_differ_and_name_their_law() -> None:
    q = random_table(2)

    def experiment(uniforms: Uniforms) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
        draft = tree_from(q, SIBLINGS)(uniforms, (), 2)
        return draft.tokens, tuple(draft.laws[1].probs())

    for (tokens, second), mass in law_of(experiment).items():
        assert tokens[0] != tokens[1]
        assert second == tuple(without(q(()), tokens[:1]))
        assert mass == q(())[tokens[0]] * second[tokens[1]]


def test_a_law_that_is_used_up_leaves_the_node_out() -> None:
    q = lambda _: fractions([0, 1, 0])  # noqa: E731
    assert len(tree_from(q, (-1, -1, 1))(Uniforms([]), (), 3)) == 1


def test_block_verification_accepts_eleven_ninths_of_the_toy_and_token_verification_ten() -> None:
    target, draft = (lambda _: fractions([1, 2])), chain_from(lambda _: fractions([2, 1]))
    assert accepted_mean(Rejection(), target, draft, 2) == Fraction(10, 9)
    assert accepted_mean(Block(), target, draft, 2) == Fraction(11, 9)
    assert accepted_mean(Traversal(), target, draft, 2) == Fraction(11, 9)


@pytest.mark.parametrize("seed", range(6))
def test_no_rule_accepts_more_of_a_chain_than_block(seed: int) -> None:
    target, q = random_table(seed, zeros=0.2), random_table(seed + 50, zeros=0.2)
    token, block = (accepted_mean(rule, target, chain_from(q), 3) for rule in (Rejection(), Block()))
    assert token <= block
    assert accepted_mean(Traversal(), target, chain_from(q), 3) == block
    assert coupled_mean(target, q, 3) <= token


@pytest.mark.parametrize("seed", range(6))
def test_coupled_is_within_its_bound_of_the_best(seed: int) -> None:
    p, q = random_table(seed, 4), random_table(seed + 50, 4)
    tv = sum(abs(a - b) for a, b in zip(p(()), q(()), strict=True)) / 2
    assert coupled_mean(p, q, 1) >= (1 - tv) / (1 + tv)


def test_a_chosen_tree_is_accepted_with_the_mass_of_its_children() -> None:
    p = fractions([1, 2, 3])
    for rule in (Rejection(), Traversal(), Coupled()):
        assert accepted_mean(rule, lambda _: p, fixed_tree((0, 2, 0), (-1, -1, -1)), 3) == Fraction(4, 6)
