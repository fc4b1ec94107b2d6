"""Rules that change the law on purpose, for more accepted tokens. None is ever chosen but by its name."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from array_api_compat import array_namespace

from outpace.errors import UsageError
from outpace.noise import Purpose
from outpace.rules.block import check_chain
from outpace.rules.quantities import draft_probs, drawn_from, probability_drawn, residual
from outpace.types import Array, Draft, Law, Noise, Verdict


class Typical:
    """Accepts tokens with p(x) > min(epsilon, delta exp(-H(p))), however they were drafted; H is p's entropy in nats.

    Of a tree the longest path of accepted tokens is taken, the first among equals; the token after it is drawn from
    the target's law. Cai et al. 2024, "Medusa", section 2.3.1.

    Lossless: no. A token above the threshold is emitted because it was drafted, whatever its probability.
    """

    name = "typical"
    lossless = False
    shares_noise = False
    verifies_trees = True

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3) -> None:
        if not 0 < epsilon <= 1:
            raise UsageError(f"epsilon must be in (0, 1], got {epsilon}")
        if not 0 < delta <= 1:
            raise UsageError(f"delta must be in (0, 1], got {delta}")
        self.epsilon = epsilon
        self.delta = delta

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the longest path of typical tokens, and a token of the target's law."""
        depths = {-1: 0}
        for node, parent in enumerate(draft.parents[: draft.verified]):
            if parent in depths and self.accepts(laws[parent + 1].probs(), draft.tokens[node]):
                depths[node] = depths[parent] + 1
        leaf = max(depths, key=lambda node: depths[node])
        return Verdict(draft.path_to(leaf), noise.categorical(Purpose.BONUS, leaf, laws[leaf + 1].probs()))

    def accepts(self, p: Array, token: int) -> bool:
        """Returns whether the token is typical of p."""
        xp = array_namespace(p)
        p = xp.astype(p, xp.float64)
        possible = p[p > 0]
        entropy = -xp.sum(possible * xp.log(possible))
        return bool(p[token] > min(self.epsilon, self.delta * float(xp.exp(-entropy))))


class Lenience:
    """Accepts x while u l q(x) < p(x), l in (0, 1]; a correction is drawn from norm(max(0, p - l q)).

    Leviathan et al. 2023, appendix A.5: a token is accepted with probability sum_x min(p(x) / l, q(x)). Chains only.

    Lossless: no, but for l = 1. No token's probability rises above p(x) / l.
    """

    name = "lenience"
    lossless = False
    shares_noise = False
    verifies_trees = False

    def __init__(self, lenience: float | Fraction = 0.5) -> None:
        self.lenience = checked_lenience(lenience)

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted prefix and a correction or bonus. Raises UsageError for a tree."""
        check_chain(draft, self.name)
        for node in range(draft.verified):
            token, p, q = draft.tokens[node], laws[node].probs(), draft_probs(draft, node)
            if not noise.accept(Purpose.ACCEPT, node, p[token], self.lenience * probability_drawn(q, token)):
                law = residual(p, self.lenience * drawn_from(q, token, p))
                return Verdict(tuple(range(node)), noise.categorical(Purpose.RESIDUAL, node, law))
        last = draft.verified - 1
        return Verdict(tuple(range(last + 1)), noise.categorical(Purpose.BONUS, last, laws[last + 1].probs()))


class GreedyLenience:
    """Accepts x while p(x) >= l max p, l in (0, 1], else emits the likeliest token; nothing is drawn.

    Leviathan et al. 2023, appendix A.5 (which prints <=). The laws must still have their shape: with temperature 0
    they are point masses and the rule is greedy decoding; with temperature 1 it is the paper's. Chains only.

    Lossless: no. A token within the factor l of the likeliest is emitted because it was drafted.
    """

    name = "lenience-greedy"
    lossless = False
    shares_noise = False
    verifies_trees = False

    def __init__(self, lenience: float | Fraction = 0.5) -> None:
        self.lenience = checked_lenience(lenience)

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted prefix and the target's likeliest next token. Raises UsageError for a tree."""
        check_chain(draft, self.name)
        length = 0
        while length < draft.verified and self.accepts(laws[length].probs(), draft.tokens[length]):
            length += 1
        p = laws[length].probs()
        return Verdict(tuple(range(length)), int(array_namespace(p).argmax(p)))

    def accepts(self, p: Array, token: int) -> bool:
        """Returns whether the token is nearly as likely as the likeliest."""
        return bool(p[token] >= self.lenience * array_namespace(p).max(p))


def checked_lenience(lenience: float | Fraction) -> float | Fraction:
    """Returns l; UsageError unless it is in (0, 1]."""
    if not 0 < lenience <= 1:
        raise UsageError(f"lenience must be in (0, 1], got {lenience}")
    return lenience
