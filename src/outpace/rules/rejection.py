"""The rule of the founding papers, on chains: accept with probability min(1, p/q), correct from the residual."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, device

from outpace.errors import UsageError
from outpace.noise import Purpose
from outpace.rules.quantities import excess
from outpace.types import Array, Draft, Law, Noise, Verdict


class Rejection:
    """Accepts token x_i while u_i q_i(x_i) < p_i(x_i); a correction is drawn from norm(max(0, p_i - q_i)).

    Leviathan, Kalman and Matias 2023, "Fast inference from transformers via speculative decoding", algorithm 1; Chen
    et al. 2023, "Accelerating large language model decoding with speculative sampling", algorithm 2. p_i and q_i are
    the laws after every filter, and q_i the one that x_i was drawn from: 1 on x_i where `draft.laws[i]` is None.
    After full acceptance the bonus is drawn from the target's next law.

    Lossless: x is emitted with probability min(p, q) + (1 - beta) (p - min(p, q)) / (1 - beta) = p, beta = sum
    min(p, q), for any q; each uniform is used once. (Exactly so in exact arithmetic: tests/rules prove it in
    rationals; float64 laws add their rounding.)
    """

    name = "rejection"
    lossless = True
    shares_noise = False
    verifies_trees = False

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted prefix and a correction or bonus. Raises UsageError for a tree."""
        if any(draft.parents[node] != node - 1 for node in range(draft.verified)):
            raise UsageError(
                "rule 'rejection' verifies chains only, got a tree; use rule 'coupled' or a chain drafter"
            )
        for node in range(draft.verified):
            token = draft.tokens[node]
            p, q = laws[node].probs(), _draft_probs(draft, node)
            if noise.accept(Purpose.ACCEPT, node, p[token], 1 if q is None else q[token]):
                continue
            left = _without(p, token) if q is None else excess(p, _fitted(q, p))
            # Nothing is left only where p = q, and then p itself is what remains to be drawn from.
            law = left if (left > 0).any() else p
            return Verdict(tuple(range(node)), noise.categorical(Purpose.RESIDUAL, node, law))
        last = draft.verified - 1
        return Verdict(tuple(range(last + 1)), noise.categorical(Purpose.BONUS, last, laws[last + 1].probs()))


def _draft_probs(draft: Draft, node: int) -> Array | None:
    law = draft.laws[node]
    return None if law is None else law.probs()


def _without(p: Array, token: int) -> Array:
    """max(0, p - q) where q is 1 on the token."""
    xp = array_namespace(p)
    return xp.where(xp.arange(p.shape[0], device=device(p)) == token, xp.zeros_like(p), p)


def _fitted(q: Array, p: Array) -> Array:
    """q over p's tokens: heads of one vocabulary may be padded to different sizes."""
    xp = array_namespace(p, q)
    missing = p.shape[0] - q.shape[0]
    if missing <= 0:
        return q[: p.shape[0]]
    return xp.concat([q, xp.zeros(missing, dtype=q.dtype, device=device(q))])
