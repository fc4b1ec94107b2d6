"""The rule of the founding papers: accept with probability min(1, p/q), correct from the residual. Trees too."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.noise import Purpose
from outpace.rules.quantities import draft_probs, probability_drawn, rejected
from outpace.types import Draft, Law, Noise, Verdict


class Rejection:
    """Accepts token x_i while u_i q_i(x_i) < p_i(x_i); a correction is drawn from norm(max(0, p_i - q_i)).

    Leviathan, Kalman and Matias 2023, "Fast inference from transformers via speculative decoding", algorithm 1; Chen
    et al. 2023, "Accelerating large language model decoding with speculative sampling", algorithm 2. p_i and q_i are
    the laws after every filter, and q_i the one that x_i was drawn from: 1 on x_i where `draft.laws[i]` is None.
    After full acceptance the bonus is drawn from the target's next law.

    Siblings are tested in the order they were drawn; a rejected one leaves its residual as the p of the next (Miao et
    al. 2024, "SpecInfer", for independent siblings; Jeon et al. 2024, "Recursive speculative decoding", and Chen et
    al. 2024, "Sequoia", for siblings drawn without replacement). Both are the same rule here, since `draft.laws[i]`
    is the law of node i given its earlier siblings: those already drawn have no mass in it.

    Lossless: x is emitted with probability min(p, q) + (1 - beta) (p - min(p, q)) / (1 - beta) = p, beta = sum
    min(p, q), for any q; then by induction over siblings and depth. Each uniform is used once. (Exactly so in exact
    arithmetic, which `outpace audit rules` enumerates; float64 laws add their rounding.)
    """

    name = "rejection"
    lossless = True
    shares_noise = False
    verifies_trees = True

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted path and a correction or bonus."""
        path: list[int] = []
        node = -1
        while children := draft.children(node):
            p = laws[node + 1].probs()
            for child in children:
                token, q = draft.tokens[child], draft_probs(draft, child)
                if noise.accept(Purpose.ACCEPT, child, p[token], probability_drawn(q, token)):
                    path.append(child)
                    node = child
                    break
                p = rejected(p, q, token)
            else:
                return Verdict(tuple(path), noise.categorical(Purpose.RESIDUAL, children[-1], p))
        return Verdict(tuple(path), noise.categorical(Purpose.BONUS, node, laws[node + 1].probs()))
