"""What a drafted chain yields under each rule, from the laws along a text that the target itself wrote.

p_i and q_i are the target's and the draft's law after the first i - 1 tokens of a recorded continuation x_1, x_2, ...
A rule that accepts a token gives it to the text with the target's own probability, so an expectation over drafts
(x ~ q) is one over the target's texts (x ~ p), and needs laws on such a text alone. With r_j = q_j(x_j) / p_j(x_j),
the chance that i tokens or more are accepted has, given x_1 .. x_(i-1), the expectation

    rejection   R_(i-1) sum_v min(p_i(v), q_i(v)),  R_i = prod_(j<=i) min(1, r_j)
    block       sum_v min(b_(i-1) p_i(v), w_(i-1) q_i(v)),  w_i = prod_(j<=i) r_j,  b_i = min(b_(i-1), w_i),  b_0 = 1
    coupled     C_(i-1) sum_v p_i(v) c_i(v),  C_i = prod_(j<=i) c_j(x_j)

where c(x) is the chance that the draft draws x, with the target's Gumbel noise, where the target does. `rejection` is
Leviathan et al. 2023, algorithm 1; `block` is E_q[a_i] of Sun et al. 2024 with a_i = b_i / w_i. Both w and b are at
least R, so on every text block is at least rejection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outpace.errors import UsageError
from outpace.theory.agreement import Probs, coupled_acceptance, laws_of_one_vocabulary


@dataclass(frozen=True, slots=True)
class Accepted:
    """Expected accepted tokens of one chain; a step commits one more."""

    rejection: float
    block: float
    coupled: float


class Along:
    """One text of the target's with both laws before each of its tokens; says what a chain has accepted at any place.

    target_laws, draft_laws: [T] of [V], each after the tokens before it. tokens: [T - 1] or more of the text, all of
    them possible for the target. Raises UsageError for what is not a law, or not as many.
    """

    def __init__(self, target_laws: Sequence[Probs], draft_laws: Sequence[Probs], tokens: Sequence[int]) -> None:
        if len(target_laws) != len(draft_laws) or len(tokens) < len(target_laws) - 1:
            raise UsageError(
                f"a text needs a target's and a draft's law for each token and the tokens between them, got "
                f"{len(target_laws)}, {len(draft_laws)} and {len(tokens)}"
            )
        self._laws = [laws_of_one_vocabulary(*pair) for pair in zip(target_laws, draft_laws, strict=True)]
        self.overlap = [float(np.minimum(p, q).sum()) for p, q in self._laws]
        self.coupled = [coupled_acceptance(p, q) for p, q in self._laws]
        read = list(zip(self._laws, tokens, strict=False))
        self._ratios = [float(q[token] / p[token]) for (p, q), token in read]
        self._follows = [
            float(1.0 / np.maximum(p, q / ratio).sum()) if ratio > 0 else 0.0
            for ((p, q), _), ratio in zip(read, self._ratios, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._laws)

    def accepted(self, start: int, length: int) -> Accepted:
        """Returns what a chain of `length` drafted tokens has accepted after the first `start` tokens of the text.

        The mean over texts drawn from the target is the expectation. Raises UsageError for a place beyond the laws.
        """
        if start < 0 or length < 1 or start + length > len(self):
            raise UsageError(f"a chain must lie in the text's {len(self)} laws, got {length} from {start} on")
        rejection = block = coupled = 0.0
        kept, joint, capped, agreed = 1.0, 1.0, 1.0, 1.0  # R, w, b, C
        for place in range(start, start + length):
            p, q = self._laws[place]
            rejection += kept * self.overlap[place]
            block += float(np.minimum(capped * p, joint * q).sum())
            coupled += agreed * self.coupled[place]
            if place + 1 < start + length:
                kept *= min(1.0, self._ratios[place])
                joint *= self._ratios[place]
                capped = min(capped, joint)
                agreed *= self._follows[place]
        return Accepted(rejection, block, coupled)
