"""Broken rules, drafters and noises: each breaks one sentence of the method; `mutants` tries them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction

from outpace.audit.drafting import SIBLINGS, chain_from, tree_from, without
from outpace.audit.enumerate import ExactLaw, ExactNoise, Probs, Table, Tokens, Uniforms, fractions, scored
from outpace.noise import Purpose
from outpace.rules.block import Block
from outpace.rules.quantities import draft_probs, drawn_from, excess, reach, residual, stay, total
from outpace.rules.rejection import Rejection
from outpace.rules.traversal import Place, Traversal
from outpace.types import Array, Draft, Law, Noise, Verdict

P = fractions([5, 3, 2])
Q = fractions([2, 3, 5])
PEAKED = fractions([9, 1, 1])
SLOPED = fractions([1, 2, 7])


def always_p(_: Tokens) -> Probs:
    """The law P, whatever came before."""
    return P


def always_q(_: Tokens) -> Probs:
    """The law Q, whatever came before."""
    return Q


# -- the correction and the bonus ------------------------------------------------------------------------------------


def _q(draft: Draft, node: int, p: Array) -> Array:
    return drawn_from(draft_probs(draft, node), draft.tokens[node], p)


def _left(draft: Draft, node: int, reached: Array, p: Array) -> Array:
    return excess(reached * p, _q(draft, node, p))


class _Replacing:
    """A noise that draws from other laws, by node, for one purpose."""

    def __init__(self, noise: Noise, purpose: Purpose, laws: Sequence[Array]) -> None:
        self._noise, self._purpose, self._laws = noise, purpose, laws
        self.accept = noise.accept

    def categorical(self, purpose: int, node: int, probs: Array) -> int:
        probs = self._laws[node] if purpose == self._purpose else probs
        return self._noise.categorical(purpose, node, probs)


class CorrectsFromTarget(Rejection):
    """Draws the correction from p instead of the residual."""

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, [law.probs() for law in laws]))


class CorrectsFromReversedResidual(Rejection):
    """Draws the correction from norm(max(0, q - p)), as a reader of Chen et al.'s swapped letters might."""

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        rows = [law.probs() for law in laws[: len(draft)]]
        reversed_ = [residual(_q(draft, node, p), p) for node, p in enumerate(rows)]
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, reversed_))


class CorrectsOneRowLate(Rejection):
    """Draws the correction from the row after the rejected token."""

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, [law.probs() for law in laws[1:]]))


class TakesBonusFromTheRowBefore(Rejection):
    """Draws the bonus from the row that the last accepted token was tested with."""

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        return super().__call__(draft, [*laws[:-1], laws[max(0, len(laws) - 2)]], noise)


# -- noise -----------------------------------------------------------------------------------------------------------


class SharedUniform(ExactNoise):
    """Tests acceptance with the uniform that the draft token was drawn with."""

    def _key(self, purpose: int, node: int) -> Hashable:
        return super()._key(Purpose.DRAFT if purpose == Purpose.ACCEPT else purpose, node)


class SameEveryRound(ExactNoise):
    """Forgets which round it is: accepts by the same uniforms again."""

    def _key(self, purpose: int, node: int) -> Hashable:
        return (int(purpose), node)


class KeyedByPosition(ExactNoise):
    """Keys a draw by the position of its token alone, so that a discarded uniform is met again."""

    def _key(self, purpose: int, node: int) -> Hashable:
        return (int(purpose), self._committed + node)


# -- drafters that misstate their law --------------------------------------------------------------------------------


def likeliest_scored_softly(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Chooses the likeliest token, and claims to have drawn it from its law."""
    return Draft.chain([2] * size, [ExactLaw(Q, uniforms, 0)] * size)


def drawn_otherwise(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Draws with a top_k of 2 and reports the law before it."""
    drawn = chain_from(lambda _: fractions([0, 3, 5]))(uniforms, committed, size)
    return Draft.chain(drawn.tokens, [ExactLaw(Q, uniforms, 0)] * size)


def drops_unlikely_tokens(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Looks at what it drew and withdraws it if its own probability is low."""
    drawn = chain_from(always_q)(uniforms, committed, size)
    keep = next((node for node, token in enumerate(drawn.tokens) if Q[token] < Fraction(1, 4)), size)
    return Draft.chain(drawn.tokens[:keep], drawn.laws[:keep])


def reports_with_replacement(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Draws siblings without replacement, and reports for each the law before anything was drawn."""
    drawn = tree_from(lambda _: PEAKED, SIBLINGS)(uniforms, committed, size)
    return Draft(drawn.tokens, drawn.parents, (ExactLaw(PEAKED, uniforms, 0),) * len(drawn))


def reports_without_replacement(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Draws siblings independently, and reports for each the law less its earlier siblings."""
    drawn = tree_from(lambda _: PEAKED, SIBLINGS, replacement=True)(uniforms, committed, size)
    return Draft(drawn.tokens, drawn.parents, _in_this_order(PEAKED, drawn.tokens, uniforms))


def sorts_siblings(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
    """Draws siblings without replacement and hands them over by falling probability, not as they were drawn."""
    drawn = tree_from(always_q, SIBLINGS)(uniforms, committed, size)
    tokens = tuple(sorted(drawn.tokens, key=lambda token: -Q[token]))
    return Draft(tokens, drawn.parents, _in_this_order(Q, tokens, uniforms))


def _in_this_order(q: Probs, tokens: Tokens, uniforms: Uniforms) -> tuple[Law, ...]:
    return tuple(ExactLaw(without(q, tokens[:i]), uniforms, 0) for i in range(len(tokens)))


# -- the target's laws, processed wrongly ----------------------------------------------------------------------------

FILTERED = fractions([5, 3, 0])


def always_filtered(_: Tokens) -> Probs:
    """P after a top_p of 0.8."""
    return FILTERED


def filters_the_bonus_only(target: Table, committed: Tokens, draft: Draft) -> list[Probs]:
    """Applies top_p to the row after the last node, and to no row that a draft token is tested with."""
    rows = scored(target, committed, draft)
    return [*(P for _ in rows[:-1]), rows[-1]]


def penalised(tokens: Tokens) -> Probs:
    """P with each token's probability divided by 1 + the times it occurred."""
    return fractions([int(60 * p) // (1 + tokens.count(token)) for token, p in enumerate(P)])


def penalises_once_a_block(target: Table, committed: Tokens, draft: Draft) -> list[Probs]:
    """Counts the committed tokens, and not the draft's own before a position."""
    return [target(committed)] * (len(draft) + 1)


# -- block verification ----------------------------------------------------------------------------------------------


class ForwardBlock(Block):
    """`Block` as the paper writes it, from the first prefix to the last; correct, and the trunk of its mutants."""

    stops_at_failure = False

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        g, reached, kept, left_kept = draft.verified, Fraction(1), 0, None
        for node in range(g):
            p = laws[node].probs()
            q = _q(draft, node, p)
            if node == 0:
                left_kept = excess(p, q)
            reached = self.grown(reached, p[draft.tokens[node]], q[draft.tokens[node]])
            left = None if node + 1 == g else _left(draft, node + 1, reached, laws[node + 1].probs())
            h = self.last(draft, laws, reached) if left is None else stay(reached, self.mass(draft, laws, node, left))
            if noise.accept(Purpose.ACCEPT, node, h, 1):
                kept, left_kept = node + 1, left
            elif self.stops_at_failure:
                break
        if left_kept is None:
            return Verdict(tuple(range(g)), noise.categorical(Purpose.BONUS, g - 1, laws[g].probs()))
        law = left_kept if total(left_kept) > 0 else laws[kept].probs()
        return Verdict(tuple(range(kept)), noise.categorical(Purpose.RESIDUAL, kept, law))

    def grown(self, before: Array, p: Array, q: Array) -> Array:
        """Returns a_i."""
        return reach(before, p, q)

    def mass(self, draft: Draft, laws: Sequence[Law], node: int, left: Array) -> Array:
        """Returns S of the prefix that ends with `node`."""
        return total(left)

    def last(self, draft: Draft, laws: Sequence[Law], reached: Array) -> Array:
        """Returns h of the whole chain."""
        return reached


class StopsAtFirstFailure(ForwardBlock):
    """Keeps the prefix before the first failure instead of the longest one that passes."""

    stops_at_failure = True


class UncappedProduct(ForwardBlock):
    """Lets the joint ratio of a prefix rise above 1 and carries it on."""

    def grown(self, before: Array, p: Array, q: Array) -> Array:
        return before * p / q


class UncappedLastTest(ForwardBlock):
    """Tests the whole chain with min(1, product of p/q), never capped on the way."""

    def last(self, draft: Draft, laws: Sequence[Law], reached: Array) -> Array:
        product = Fraction(1)
        for node, token in enumerate(draft.tokens):
            p = laws[node].probs()
            product *= p[token] / _q(draft, node, p)[token]
        return product


class MassOfTheRowBefore(ForwardBlock):
    """Takes S_i from the row that x_i was tested with, not from the one after it."""

    def mass(self, draft: Draft, laws: Sequence[Law], node: int, left: Array) -> Array:
        p = laws[node].probs()
        return total(excess(p, _q(draft, node, p)))


class ForgetsReach(Block):
    """Draws the correction from norm(max(0, p - q)), as token verification does, without a_tau."""

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        rows = [law.probs() for law in laws[: len(draft)]]
        tokenwise = [residual(p, _q(draft, node, p)) for node, p in enumerate(rows)]
        return super().__call__(draft, laws, _Replacing(noise, Purpose.RESIDUAL, tokenwise))


class KeepsParentsReach(Traversal):
    """Removes a failed leaf and leaves its parent's joint ratio as it was."""

    def remove(self, failed: Place, token: int, parent: Place) -> None:
        before = parent.reached
        super().remove(failed, token, parent)
        parent.reached = before
