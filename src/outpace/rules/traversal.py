"""Traversal verification: block verification on trees, from the leaves to the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.noise import Purpose
from outpace.rules.quantities import draft_probs, drawn_from, excess, probability_drawn, reach, stay, total
from outpace.types import Array, Draft, Law, Noise, Verdict


@dataclass(slots=True)
class Place:
    """A node on the way down.

    q: the law it was drawn from, None for a choice. reached: a of its path. p: what is left of the law after it.
    waiting: its children that are still to be tried.
    """

    node: int
    q: Array | None
    reached: Array
    p: Array
    waiting: list[int]


class Traversal:
    """Tries the leaves from the first path on: a leaf of joint ratio a is taken, path and all, while u < a.

    a = 1 at the root and a(child) = min(1, a(node) p(x) / q(x)), with x the child's token. A leaf that fails is
    removed: with S = sum_x max(0, a p(x) - q(x)) at its parent, p becomes norm(max(0, a p - q)) and a becomes
    S / (S + 1 - a). A node that has lost its children is a leaf; the root, a = 1, never fails. The next token is
    drawn from what is left of p at the leaf taken. q is `draft.laws` of the child, given its earlier siblings.
    "Traversal verification for speculative tree decoding", arXiv 2505.12398.

    Lossless: each removal is the step of `block` with the sibling's own q, so what remains at the parent has the
    target's law; `outpace audit rules` enumerates it. On a chain the law of verdicts is that of `block`.
    """

    name = "traversal"
    lossless = True
    shares_noise = False
    verifies_trees = True

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        """Returns the accepted path and a correction or bonus."""
        way = [Place(-1, None, 1, laws[0].probs(), draft.children(-1))]
        while True:
            here = way[-1]
            if here.waiting:
                child = here.waiting[0]
                token, q = draft.tokens[child], draft_probs(draft, child)
                reached = reach(here.reached, here.p[token], probability_drawn(q, token))
                way.append(Place(child, q, reached, laws[child + 1].probs(), draft.children(child)))
            elif noise.accept(Purpose.ACCEPT, here.node, here.reached, 1):
                purpose = Purpose.RESIDUAL if draft.children(here.node) else Purpose.BONUS
                return Verdict(draft.path_to(here.node), noise.categorical(purpose, here.node, here.p))
            else:
                failed = way.pop()
                self.remove(failed, draft.tokens[failed.node], way[-1])

    def remove(self, failed: Place, token: int, parent: Place) -> None:
        """Takes a failed child away from its parent, with the mass that it stood for."""
        parent.waiting.remove(failed.node)
        left = excess(parent.reached * parent.p, drawn_from(failed.q, token, parent.p))
        mass = total(left)
        parent.reached = stay(parent.reached, mass)
        if mass > 0:
            parent.p = left / mass
