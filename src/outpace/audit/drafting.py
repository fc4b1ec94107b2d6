"""Drafters for the enumeration: chains and trees, drawn and chosen, with the laws they were drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from outpace.audit.enumerate import Drafting, ExactLaw, ExactNoise, Probs, Table, Tokens, Uniforms
from outpace.noise import Purpose
from outpace.types import Draft

Shape = tuple[int, ...]
"""[N] the parent of each node, siblings side by side; a draft of size n has the first n nodes."""

SIBLINGS: Shape = (-1, -1)
THREE_SIBLINGS: Shape = (-1, -1, -1)
BRANCHES: Shape = (-1, -1, 0, 0)
TWO_PATHS: Shape = (-1, -1, 0, 1)


def chain_from(q: Table) -> Drafting:
    """A drafter that samples each token of a chain from its law and says so."""

    def draft(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
        tokens: list[int] = []
        laws = []
        for node in range(size):
            probs = q((*committed, *tokens))
            laws.append(ExactLaw(probs, uniforms, 0))
            tokens.append(ExactNoise(uniforms, len(committed)).categorical(Purpose.DRAFT, node, probs))
        return Draft.chain(tokens, laws)

    return draft


def sharing_noise(q: Table) -> Drafting:
    """A drafter that samples a chain with the target's own noise, as drafters do under `coupled`."""

    def draft(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
        tokens: list[int] = []
        laws = []
        for _ in range(size):
            before = (*committed, *tokens)
            laws.append(ExactLaw(q(before), uniforms, len(before)))
            tokens.append(laws[-1].draw())
        return Draft.chain(tokens, laws)

    return draft


def choosing(choice: Callable[[Tokens], int]) -> Drafting:
    """A drafter without randomness, such as an n-gram match: its laws are point masses."""

    def draft(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
        tokens: list[int] = []
        for _ in range(size):
            tokens.append(choice((*committed, *tokens)))
        return Draft.chain(tokens)

    return draft


def fixed_tree(tokens: Sequence[int], parents: Shape) -> Drafting:
    """A tree chosen without randomness; duplicates among its siblings are legal."""
    return lambda uniforms, committed, size: Draft(tuple(tokens[:size]), parents[:size], (None,) * size)


def tree_from(q: Table, parents: Shape, *, replacement: bool = False, chosen: int = 0) -> Drafting:
    """A drafter that samples a tree; siblings without replacement, or independently.

    chosen: so many first siblings are the likeliest tokens, taken without randomness (the rest are drawn without
    them). Where a law has no token left, the node and what is below it are left out.
    """

    def draft(uniforms: Uniforms, committed: Tokens, size: int) -> Draft:
        noise = ExactNoise(uniforms, len(committed))
        made = Draft()
        place = {-1: -1}
        for node, parent in enumerate(parents[:size]):
            if parent not in place:
                continue
            siblings = made.children(place[parent])
            path = tuple(made.tokens[i] for i in made.path_to(place[parent]))
            probs = q(committed + path)
            if not replacement:
                probs = without(probs, [made.tokens[i] for i in siblings])
            if not sum(probs) > 0:
                continue
            law = None if len(siblings) < chosen else ExactLaw(probs, uniforms, 0)
            token = int(np.argmax(probs)) if law is None else noise.categorical(Purpose.DRAFT, node, probs)
            place[node] = len(made)
            made = Draft((*made.tokens, token), (*made.parents, place[parent]), (*made.laws, law))
        return made

    return draft


def without(probs: Probs, tokens: Sequence[int]) -> Probs:
    """Returns the law given that none of the tokens is drawn; all 0 where no other is possible."""
    left = probs.copy()
    left[list(tokens)] = 0
    total = sum(left)
    return left / total if total else left
