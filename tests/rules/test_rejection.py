"""The law of `rejection`, enumerated exactly; and broken rules that the same proof rejects."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np
import pytest
from rules.enumeration import (
    ExactLaw,
    ExactNoise,
    Probs,
    Table,
    Uniforms,
    fractions,
    joint,
    law_of,
    one_hot,
    random_table,
    total_variation,
)

from outpace.errors import UsageError
from outpace.noise import Purpose, RoundNoise
from outpace.rules import Rejection, TableLaw, overlap, rejection_verify
from outpace.rules.quantities import excess
from outpace.types import Draft, Rule

Drafting = Callable[[Uniforms, tuple[int, ...], int], Draft]  # (uniforms, committed tokens, length) -> a chain


def drawing_from(q: Table) -> Drafting:
    """A drafter that samples each token from its law and says so."""

    def draft(uniforms: Uniforms, committed: tuple[int, ...], length: int) -> Draft:
        tokens: list[int] = []
        laws = []
        for node in range(length):
            probs = q((*committed, *tokens))
            laws.append(ExactLaw(probs, uniforms, 0))
            tokens.append(ExactNoise(uniforms, len(committed)).categorical(Purpose.DRAFT, node, probs))
        return Draft.chain(tokens, laws)

    return draft


def choosing(choice: Callable[[tuple[int, ...]], int]) -> Drafting:
    """A drafter without randomness, such as an n-gram match: its laws are point masses."""

    def draft(uniforms: Uniforms, committed: tuple[int, ...], length: int) -> Draft:
        tokens: list[int] = []
        for _ in range(length):
            tokens.append(choice((*committed, *tokens)))
        return Draft.chain(tokens)

    return draft


def emitted(
    rule: Rule,
    target: Table,
    drafting: Drafting,
    lengths: tuple[int, ...],
    noise: Callable[[Uniforms, int], ExactNoise] = ExactNoise,
) -> dict[Hashable, Fraction]:
    """Returns the law of the first max(lengths) + 1 tokens: rounds of these draft lengths, then plain decoding."""
    horizon = max(lengths) + 1

    def experiment(uniforms: Uniforms) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        rounds = iter(lengths)
        while len(tokens) < horizon:
            draft = drafting(uniforms, tokens, next(rounds, 0))
            prefixes = [tokens + draft.tokens[:row] for row in range(len(draft) + 1)]
            laws = [ExactLaw(target(prefix), uniforms, len(prefix)) for prefix in prefixes]
            tokens += rule(draft, laws, noise(uniforms, len(tokens))).tokens(draft)
        return tokens[:horizon]

    return law_of(experiment)


def disjoint(tokens: tuple[int, ...]) -> Probs:
    return fractions([0, 0, 1]) if len(tokens) % 2 else fractions([0, 1, 3])


PAIRS: dict[str, tuple[Table, Table]] = {
    "random": (random_table(1), random_table(2)),
    "many zeros": (random_table(3, zeros=0.5), random_table(4, zeros=0.5)),
    "ties": (random_table(5, levels=2), random_table(6, levels=2)),
    "the same law": (random_table(7), random_table(7)),
    "disjoint supports": (lambda _: one_hot(0), disjoint),
    "one-hot target": (lambda tokens: one_hot(len(tokens) % 3), random_table(8)),
    "one-hot draft law": (random_table(9), lambda tokens: one_hot(sum(tokens) % 3)),
    "both one-hot": (lambda tokens: one_hot(len(tokens) % 3), lambda tokens: one_hot(sum(tokens) % 3)),
}


@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_round_emits_exactly_the_targets_law(pair: str, length: int) -> None:
    target, q = PAIRS[pair]
    assert emitted(Rejection(), target, drawing_from(q), (length,)) == joint(target, length + 1)


@pytest.mark.parametrize("pair", PAIRS)
def test_so_do_two_rounds_in_a_row(pair: str) -> None:
    target, q = PAIRS[pair]
    assert emitted(Rejection(), target, drawing_from(q), (2, 2)) == joint(target, 3)


@pytest.mark.parametrize("lengths", [(0,), (1,), (2,), (3,), (1, 1), (2, 2)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_and_drafts_chosen_without_randomness(seed: int, lengths: tuple[int, ...]) -> None:
    target = random_table(seed, zeros=0.3)
    assert emitted(Rejection(), target, choosing(lambda tokens: sum(tokens) % 3), lengths) == joint(
        target, max(lengths) + 1
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_first_token_is_accepted_with_the_overlap(seed: int) -> None:
    p, q = random_table(seed, 4)(()), random_table(seed + 100, 4, zeros=0.3)(())

    def accepted(uniforms: Uniforms) -> int:
        draft = drawing_from(lambda _: q)(uniforms, (), 1)
        return len(Rejection()(draft, [ExactLaw(p, uniforms, 0)] * 2, ExactNoise(uniforms, 0)).path)

    assert law_of(accepted).get(1, 0) == overlap(p, q)


# -- mutants: each breaks one rule of the method, and the enumeration sees it ----------------------------------------

P = fractions([5, 3, 2])
Q = fractions([2, 3, 5])


class CorrectsFromTarget(Rejection):
    """Draws the correction from p instead of the residual."""

    def __call__(self, draft, laws, noise):
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, [law.probs() for law in laws]))


class CorrectsFromReversedResidual(Rejection):
    """Draws the correction from norm(max(0, q - p)), as a reader of Chen et al.'s swapped letters might."""

    def __call__(self, draft, laws, noise):
        reversed_ = [excess(q.probs(), p.probs()) for q, p in zip(draft.laws, laws, strict=False)]
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, reversed_))


class TakesBonusFromTheRowBefore(Rejection):
    def __call__(self, draft, laws, noise):
        return super().__call__(draft, [*laws[:-1], laws[max(0, len(laws) - 2)]], noise)


class _Replacing:
    """A noise that draws from other laws, by node, for one purpose."""

    def __init__(self, noise, purpose, laws) -> None:
        self._noise, self._purpose, self._laws = noise, purpose, laws
        self.accept = noise.accept

    def categorical(self, purpose, node, probs):
        probs = self._laws[node] if purpose == self._purpose else probs
        return self._noise.categorical(purpose, node, probs)


class SharedUniform(ExactNoise):
    """Tests acceptance with the uniform that the draft token was drawn with."""

    def _key(self, purpose: int, node: int) -> Hashable:
        return super()._key(Purpose.DRAFT if purpose == Purpose.ACCEPT else purpose, node)


class SameEveryRound(ExactNoise):
    """Forgets which round it is: accepts by the same uniforms again."""

    def _key(self, purpose: int, node: int) -> Hashable:
        return (int(purpose), node)


def likeliest_scored_softly(uniforms: Uniforms, committed: tuple[int, ...], length: int) -> Draft:
    """Chooses the likeliest token, and claims to have drawn it from its law."""
    return Draft.chain([2] * length, [ExactLaw(Q, uniforms, 0)] * length)


def drawn_otherwise(uniforms: Uniforms, committed: tuple[int, ...], length: int) -> Draft:
    """Draws with a top_k of 2 and reports the law before it."""
    drawn = drawing_from(lambda _: fractions([0, 3, 5]))(uniforms, committed, length)
    return Draft.chain(drawn.tokens, [ExactLaw(Q, uniforms, 0)] * length)


def drops_unlikely_tokens(uniforms: Uniforms, committed: tuple[int, ...], length: int) -> Draft:
    """Looks at what it drew and withdraws it if its own probability is low."""
    drawn = drawing_from(lambda _: Q)(uniforms, committed, length)
    keep = next((node for node, token in enumerate(drawn.tokens) if Q[token] < Fraction(1, 4)), length)
    return Draft.chain(drawn.tokens[:keep], drawn.laws[:keep])


MUTANTS = {
    "correction from p": (CorrectsFromTarget(), drawing_from(lambda _: Q), ExactNoise, (1,)),
    "correction from norm(q - p)": (CorrectsFromReversedResidual(), drawing_from(lambda _: Q), ExactNoise, (1,)),
    "bonus from the row before": (TakesBonusFromTheRowBefore(), drawing_from(random_table(11)), ExactNoise, (1,)),
    "one uniform for draft and test": (Rejection(), drawing_from(lambda _: Q), SharedUniform, (1,)),
    "uniforms used again next round": (Rejection(), drawing_from(lambda _: Q), SameEveryRound, (1, 1)),
    "argmax draft, soft law": (Rejection(), likeliest_scored_softly, ExactNoise, (1,)),
    "law recorded before the filter": (Rejection(), drawn_otherwise, ExactNoise, (1,)),
    "draft token dropped after a look": (Rejection(), drops_unlikely_tokens, ExactNoise, (1,)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_proof_rejects(mutant: str) -> None:
    rule, drafting, noise, lengths = MUTANTS[mutant]

    def target(tokens: tuple[int, ...]) -> Probs:
        return random_table(12)(tokens) if tokens and "bonus" in mutant else P

    distance = total_variation(emitted(rule, target, drafting, lengths, noise), joint(target, max(lengths) + 1))
    assert distance > Fraction(1, 100)


def test_argmax_drafts_with_a_soft_law_fail_as_published() -> None:
    law = emitted(Rejection(), lambda _: P, likeliest_scored_softly, (1,))
    first = [sum(mass for tokens, mass in law.items() if tokens[0] == token) for token in range(3)]
    assert first == [Fraction(6, 10), 0, Fraction(4, 10)]


# -- the float side --------------------------------------------------------------------------------------------------


class ZeroNoise(RoundNoise):
    """Every uniform is 0, the one value where < and <= differ."""

    def uniform(self, purpose: int, node: int) -> float:
        return 0.0


def test_a_token_that_the_target_excludes_is_not_accepted_even_at_zero() -> None:
    p, q = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    verdict = rejection_verify([0], np.stack([p, p]), q[None], noise=ZeroNoise(1))
    assert (verdict.path, verdict.next_token) == ((), 1)


def test_an_empty_residual_means_the_target_itself() -> None:
    class Refuses(ZeroNoise):
        def accept(self, purpose: int, node: int, p: float, q: float) -> bool:
            return False

    p = np.array([0.25, 0.75])
    assert rejection_verify([0], np.stack([p, p]), p[None], noise=Refuses(1)).next_token == 0


def test_heads_padded_to_different_sizes_meet() -> None:
    p, q = np.array([[0.1, 0.9, 0.0, 0.0]] * 2), np.array([[0.9, 0.1]])
    for seed in range(20):
        assert rejection_verify([0], p, q, noise=RoundNoise(seed)).tokens(Draft.chain([0]))[0] in (0, 1)
        assert rejection_verify([0], q.repeat(2, 0), p[:1], noise=RoundNoise(seed)).next_token in (0, 1)


def test_a_tree_is_refused_before_any_law_is_read() -> None:
    tree = Draft((1, 2), (-1, -1), (None, None))
    with pytest.raises(UsageError, match="rule 'rejection' verifies chains only"):
        Rejection()(tree, [], RoundNoise(1))


def test_probes_are_not_verified() -> None:
    draft = Draft((1, 0), (-1, -1), (None, None), probes=1)
    certain = TableLaw(np.array([0.0, 1.0]))
    verdict = Rejection()(draft, [certain, certain, certain], RoundNoise(1))
    assert (verdict.path, verdict.next_token) == ((0,), 1)


@pytest.mark.parametrize(
    ("tokens", "rows", "message"),
    [
        ([1, 2], 2, r"2 draft tokens need target_probs of shape \[3, V\], got \[2, 4\]"),
        ([1, 9], 3, r"draft tokens must be in \[0, 4\), got 9"),
    ],
)
def test_shapes_and_ids_are_checked(tokens: list[int], rows: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rejection_verify(tokens, np.full((rows, 4), 0.25), noise=RoundNoise(1))
