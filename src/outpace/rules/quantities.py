"""The quantities of speculative sampling, for the laws p (target) and q (draft) of one position.

Arrays of any library that follows the array-API standard; one-dimensional [V], non-negative.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from outpace.types import Array, Draft


def overlap(target_probs: Array, draft_probs: Array) -> Array:
    """Returns beta = sum_x min(p(x), q(x)) = 1 - TV(p, q): the chance that a token drawn from q is accepted.

    Leviathan et al. 2023, definition 3.1 and theorem 3.5.
    """
    xp = array_namespace(target_probs, draft_probs)
    return xp.sum(xp.where(target_probs < draft_probs, target_probs, draft_probs))


def acceptance_probability(target_probs: Array, draft_probs: Array, token: int) -> Array | float:
    """Returns min(1, p(x) / q(x)) for a token x with q(x) > 0: the chance that x, once drafted, is accepted."""
    p, q = target_probs[token], draft_probs[token]
    return p / q if p < q else 1.0


def excess(target_probs: Array, draft_probs: Array) -> Array:
    """Returns [V] max(0, p - q), the residual before it is normalised; its sum is 1 - beta."""
    xp = array_namespace(target_probs, draft_probs)
    difference = target_probs - draft_probs
    return xp.where(difference > 0, difference, xp.zeros_like(difference))


def residual(target_probs: Array, draft_probs: Array) -> Array:
    """Returns [V] norm(max(0, p - q)), the law of a correction; p itself where p = q and nothing is left.

    Leviathan et al. 2023, algorithm 1; Chen et al. 2023, equation 5 (who call it (q - p)_+).
    """
    xp = array_namespace(target_probs, draft_probs)
    left = excess(target_probs, draft_probs)
    total = xp.sum(left)
    return left / total if total > 0 else target_probs / xp.sum(target_probs)


def total(masses: Array) -> Array:
    """Returns the sum of [V] masses."""
    return array_namespace(masses).sum(masses)


def draft_probs(draft: Draft, node: int) -> Array | None:
    """Returns q, the law that a node was drawn from; None where it was chosen without randomness, q = 1 on its token.

    A rule asks once for each node: a law may be computed anew each time.
    """
    law = draft.laws[node]
    return None if law is None else law.probs()


def probability_drawn(q: Array | None, token: int) -> Array | int:
    """Returns q(x), x the node's own token."""
    return 1 if q is None else q[token]


def drawn_from(q: Array | None, token: int, target_probs: Array) -> Array:
    """Returns [V] q over p's tokens, 1 on x = `token` for None.

    Heads of one vocabulary may be padded to different sizes: q is cut, or filled up with 0, to the size of p.
    """
    xp = array_namespace(target_probs)
    if q is None:
        chosen = xp.arange(target_probs.shape[0], device=device(target_probs)) == token
        return xp.where(chosen, xp.ones_like(target_probs), xp.zeros_like(target_probs))
    missing = target_probs.shape[0] - q.shape[0]
    if missing <= 0:
        return q[: target_probs.shape[0]]
    return xp.concat([q, xp.zeros(missing, dtype=q.dtype, device=device(q))])


def rejected(target_probs: Array, q: Array | None, token: int) -> Array:
    """Returns [V] norm(max(0, p - q)): what is left of p, once x is rejected, for its siblings and the correction."""
    if q is not None:
        return residual(target_probs, drawn_from(q, token, target_probs))
    xp = array_namespace(target_probs)
    chosen = xp.arange(target_probs.shape[0], device=device(target_probs)) == token
    left = xp.where(chosen, xp.zeros_like(target_probs), target_probs)
    mass = xp.sum(left)
    return left / mass if mass > 0 else target_probs


def left_mass(reached: Array, target_probs: Array, q: Array | None, token: int) -> Array:
    """Returns S = sum_x max(0, a p(x) - q(x)), a = `reached` in [0, 1]; for a token that was chosen, a (1 - p(x))."""
    if q is None:
        return reached * (1 - target_probs[token])
    return total(excess(reached * target_probs, drawn_from(q, token, target_probs)))


def reach(before: Array, p: Array, q: Array) -> Array:
    """Returns min(1, a p(x) / q(x)), the capped joint ratio of a path that goes on by the token x; a = `before`.

    Sun et al. 2024, block verification. Every number is at most 1, so nothing overflows; a token that the target
    excludes ends the path with 0, whatever q says of it.
    """
    mass = before * p
    if mass < q:
        return mass / q
    return 1 if mass > 0 else 0


def stay(before: Array, left: Array) -> Array:
    """Returns h = S / (S + 1 - a): how likely a path of joint ratio a = `before` ends where it stands.

    left: S = sum_x max(0, a p(x) - q(x)), of the position after the path. 1 where both S and 1 - a are 0.
    Sun et al. 2024, block verification.
    """
    lost = 1 - before
    return left / (left + lost) if left + lost > 0 else 1
