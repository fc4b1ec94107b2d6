"""How often a drafted token is accepted, from the two laws themselves: p the target's, q the draft's, both [V].

beta is the acceptance of one token in one context; the acceptance rate alpha is its mean over contexts
(Leviathan et al., arXiv 2211.17192, section 3). Laws are those after every processor (temperature, top-k, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError
from outpace.theory import checks

Probs: TypeAlias = npt.ArrayLike
"""[V] non-negative, sums to 1 within 1e-3 (single precision over a large vocabulary)."""

Float64: TypeAlias = npt.NDArray[np.float64]


def overlap(target_probs: Probs, draft_probs: Probs) -> float:
    """Returns beta = sum_v min(p_v, q_v) = 1 - TV(p, q), in [0, 1]: acceptance under the rule `rejection`.

    Leviathan et al. Theorem 3.5; Chen et al. (arXiv 2302.01318) Theorem 1 uses the same test. No rule that looks
    at one drafted token accepts more often.
    """
    p, q = laws_of_one_vocabulary(target_probs, draft_probs)
    return _probability(np.minimum(p, q).sum())


def total_variation(target_probs: Probs, draft_probs: Probs) -> float:
    """Returns TV(p, q) = 1/2 sum_v |p_v - q_v|, in [0, 1]; D_LK of Leviathan et al. Definition 3.2."""
    p, q = laws_of_one_vocabulary(target_probs, draft_probs)
    return _probability(0.5 * np.abs(p - q).sum())


def coupled_acceptance(target_probs: Probs, draft_probs: Probs) -> float:
    """Returns P(both draw the same token) when both add the same Gumbel noise, in [(1 - TV)/(1 + TV), 1 - TV].

    sum_v 1 / sum_w max(p_w / p_v, q_w / q_v), over tokens v that both laws allow. As a race of exponentials:
    argmax_v(log p_v + G_v) is the v with the least E_v / p_v, E_v ~ Exp(1). Token v wins both races iff
    E_w > E_v m_w for every other w, m_w = max(p_w / p_v, q_w / q_v); integrate exp(-E_v (1 + sum m_w)) over E_v.
    The lower bound is that of the Gumbel coupling (Daliri, Musco, Suresh, arXiv 2408.07978). Exact, O(V log V).
    """
    p, q = laws_of_one_vocabulary(target_probs, draft_probs)
    shared = (p > 0.0) & (q > 0.0)
    if not shared.any():
        return 0.0
    # m_w is p's ratio exactly where p_w / q_w >= p_v / q_v: sorted by p/q, two running sums give every total.
    with np.errstate(over="ignore"):  # an infinite ratio belongs to a token that adds nothing
        order = np.argsort(np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0.0), kind="stable")
        p, q, shared = p[order], q[order], shared[order]
        q_before = np.cumsum(q) - q
        p_from = np.cumsum(p[::-1])[::-1]
        total = p_from[shared] / p[shared] + q_before[shared] / q[shared]
    return _probability((1.0 / total).sum())


def independent_acceptance(target_probs: Probs, draft_probs: Probs) -> float:
    """Returns sum_v p_v q_v, in [0, 1]: acceptance when target and draft are drawn independently and compared.

    With q a point mass (an n-gram, a greedy draft) it is p at the drafted token, and no rule does better.
    """
    p, q = laws_of_one_vocabulary(target_probs, draft_probs)
    return _probability((p * q).sum())


def lenient_acceptance(target_probs: Probs, draft_probs: Probs, lenience: float) -> float:
    """Returns sum_v min(p_v / l, q_v), in [0, 1]: acceptance when tested against l q_v, l in (0, 1].

    Leviathan et al. appendix A.5. Lossy for l < 1: a token's probability may rise to p_v / l; l = 1 is `overlap`.
    """
    if not 0.0 < lenience <= 1.0:
        raise UsageError(f"lenience must be in (0, 1], got {lenience}: 1 is lossless")
    p, q = laws_of_one_vocabulary(target_probs, draft_probs)
    with np.errstate(over="ignore"):  # the minimum takes q there
        return _probability(np.minimum(p / lenience, q).sum())


Laws: TypeAlias = Callable[[tuple[int, ...]], tuple[Probs, Probs]]
"""(p, q) after a prefix of drafted tokens."""


def accepted_by_block_verification(laws: Laws, draft_length: int) -> float:
    """Returns the expected accepted tokens of a chain under block verification, by enumeration of V^gamma drafts.

    sum_i E_q[a_i] with a_0 = 1, a_i = min(1, a_{i-1} p(x_i) / q(x_i)): a_i is the probability that at least i
    tokens are kept, and no valid rule for one chain keeps more (Sun et al., arXiv 2403.10444). For tiny
    vocabularies.
    """
    return _expected_accepted(laws, draft_length, lambda alive, ratio: min(1.0, alive * ratio))


def accepted_by_token_verification(laws: Laws, draft_length: int) -> float:
    """Returns the expected accepted tokens of a chain under the rule `rejection`, by enumeration of V^gamma drafts.

    sum_i E_q[prod_{j <= i} min(1, p(x_j) / q(x_j))] (Leviathan et al. Algorithm 1). For tiny vocabularies.
    """
    return _expected_accepted(laws, draft_length, lambda alive, ratio: alive * min(1.0, ratio))


def _expected_accepted(laws: Laws, draft_length: int, keep: Callable[[float, float], float]) -> float:
    checks.count("draft_length", draft_length, 0, "tokens")

    def from_prefix(prefix: tuple[int, ...], alive: float) -> float:
        if len(prefix) == draft_length:
            return 0.0
        p, q = laws_of_one_vocabulary(*laws(prefix))
        expected = 0.0
        with np.errstate(over="ignore"):  # both rules cap the ratio at 1
            ratios = np.divide(p, q, out=np.zeros_like(p), where=q > 0.0)
        for token in map(int, np.flatnonzero(q)):
            kept = keep(alive, float(ratios[token]))
            expected += float(q[token]) * (kept + from_prefix((*prefix, token), kept))
        return expected

    return from_prefix((), 1.0)


def laws_of_one_vocabulary(target_probs: Probs, draft_probs: Probs) -> tuple[Float64, Float64]:
    """Returns both laws [V] in float64, summing to 1. Raises UsageError for what is none, or of two sizes."""
    p, q = _law("target_probs", target_probs), _law("draft_probs", draft_probs)
    if p.shape != q.shape:
        raise UsageError(
            f"target_probs and draft_probs must cover one vocabulary, got {p.size} and {q.size} tokens: "
            "pad the shorter with zeros"
        )
    return p, q


def _law(name: str, probs: Any) -> Float64:
    law = np.asarray(probs, dtype=np.float64)
    if law.ndim != 1 or law.size == 0:
        raise UsageError(f"{name} must be one law [V], got an array of shape {law.shape}")
    total = float(law.sum())
    if not np.isfinite(total) or float(law.min()) < 0.0 or abs(total - 1.0) > 1e-3:
        raise UsageError(
            f"{name} must be non-negative and sum to 1, got minimum {law.min():.3g} and sum {total:.6g}: "
            "pass probabilities, not logits"
        )
    return np.asarray(law / total, dtype=np.float64)


def _probability(value: Any) -> float:
    return min(1.0, max(0.0, float(value)))
