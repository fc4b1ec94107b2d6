"""The default rule: emit the target's own draws, accept what the draft guessed of them."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.types import Draft, Law, Noise, Verdict


class Coupled:
    """Walks from the root: y_t is the target's own draw; descend into the first child that carries it, else emit it.

    A drafter that samples with the same Gumbel noise proposes x_t = argmax(log q_t + G_t), the target emits
    y_t = argmax(log p_t + G_t), and P(x_t = y_t) >= (1 - TV(p, q)) / (1 + TV(p, q)) (Daliri, Musco and Suresh 2024,
    "Coupling without communication and drafter-invariant speculative decoding", theorem 3).

    Lossless: every emitted token is the plain sampler's draw at its position, whatever was drafted; so not only the
    law but the text is that of plain decoding with the same seed, for any chain or tree.
    """

    name = "coupled"
    lossless = True
    shares_noise = True
    verifies_trees = True

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted path and the target's draw after it; `noise` is not used: laws carry their own."""
        path: list[int] = []
        tokens, parents, verified = draft.tokens, draft.parents, draft.verified
        node = -1
        while True:
            token = laws[node + 1].draw()
            for child in range(node + 1, verified):  # children come after their parent
                if parents[child] == node and tokens[child] == token:
                    break
            else:
                return Verdict(tuple(path), token)
            path.append(child)
            node = child
