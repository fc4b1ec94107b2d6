"""Block verification: tests a chain as a whole, and never accepts less of it than `rejection`."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.errors import UsageError
from outpace.noise import Purpose
from outpace.rules.quantities import draft_probs, drawn_from, excess, left_mass, probability_drawn, reach, stay, total
from outpace.types import Array, Draft, Law, Noise, Verdict


class Block:
    """Keeps the longest prefix x_1..x_i with u_i < h_i; a correction is drawn from norm(max(0, a_i p_i+1 - q_i+1)).

    a_0 = 1 and a_i = min(1, a_i-1 p_i(x_i) / q_i(x_i)); S_i = sum_x max(0, a_i p_i+1(x) - q_i+1(x));
    h_i = S_i / (S_i + 1 - a_i), and h_g = a_g for the whole chain of g tokens, which a bonus follows. The u_i are
    independent, and the first failure does not end the search. Sun et al. 2024, "Block verification accelerates
    speculative decoding", arXiv 2403.10444; optimal among rules for one chain.

    Lossless: proved there: a prefix is kept with just the probability that lets the corrections make up the
    target's joint law; `outpace audit rules` enumerates it. One draft token, or a draft without randomness, gives
    the law of verdicts that `rejection` has.
    """

    name = "block"
    lossless = True
    shares_noise = False
    verifies_trees = False

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted prefix and a correction or bonus. Raises UsageError for a tree."""
        check_chain(draft, self.name)
        g, tokens = draft.verified, draft.tokens
        p = [laws[node].probs() for node in range(g)]  # [g] of [V]
        q = [draft_probs(draft, node) for node in range(g)]
        reaches: list[Array] = [1]
        for p_i, q_i, token in zip(p, q, tokens, strict=False):
            reaches.append(reach(reaches[-1], p_i[token], probability_drawn(q_i, token)))
        # From the far end: the first pass found is the longest, and shorter prefixes need not be looked at.
        if g == 0 or noise.accept(Purpose.ACCEPT, g - 1, reaches[g], 1):
            return Verdict(tuple(range(g)), noise.categorical(Purpose.BONUS, g - 1, laws[g].probs()))
        length = g - 1
        while length:
            mass = left_mass(reaches[length], p[length], q[length], tokens[length])
            if noise.accept(Purpose.ACCEPT, length - 1, stay(reaches[length], mass), 1):
                break
            length -= 1
        left = excess(reaches[length] * p[length], drawn_from(q[length], tokens[length], p[length]))
        # Nothing is left only where p = q, and then p itself is what remains to be drawn from.
        law = left if total(left) > 0 else p[length]
        return Verdict(tuple(range(length)), noise.categorical(Purpose.RESIDUAL, length, law))


def check_chain(draft: Draft, rule: str) -> None:
    """Raises UsageError if the verified part of the draft is not a chain."""
    if any(draft.parents[node] != node - 1 for node in range(draft.verified)):
        raise UsageError(
            f"rule {rule!r} verifies chains only, got a tree; use rule 'coupled', 'rejection' or 'traversal'"
        )
