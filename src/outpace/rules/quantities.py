"""The quantities of speculative sampling, for the laws p (target) and q (draft) of one position.

Arrays of any library that follows the array-API standard; one-dimensional [V], non-negative.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from outpace.types import Array


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
