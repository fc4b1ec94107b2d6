"""`coupled`: whatever is drafted, the tokens are the plain sampler's own."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from outpace.audit.enumerate import ExactLaw, ExactNoise, Table, Uniforms, joint, law_of, random_table
from outpace.rules import RULES, Coupled, TableLaw, coupled_verify
from outpace.types import Draft

Drafting = Callable[[Uniforms, tuple[int, ...]], Draft]


def same_noise(q: Table, length: int) -> Drafting:
    """Samples from q with the target's own noise."""

    def draft(uniforms: Uniforms, committed: tuple[int, ...]) -> Draft:
        tokens: list[int] = []
        for i in range(length):
            tokens.append(ExactLaw(q((*committed, *tokens)), uniforms, len(committed) + i).draw())
        return Draft.chain(tokens)

    return draft


def tree(uniforms: Uniforms, committed: tuple[int, ...]) -> Draft:
    """Two siblings, a duplicate of one, and children below two of them."""
    return Draft((0, 1, 1, 2, 0, 0), (-1, -1, -1, 0, 1, 2), (None,) * 6)


DRAFTS: dict[str, Drafting] = {
    "nothing": lambda uniforms, committed: Draft(),
    "the same noise": same_noise(random_table(2, levels=3), 2),
    "the target's own draws": same_noise(random_table(1), 2),
    "a fixed guess": lambda uniforms, committed: Draft.chain([1, 2]),
    "a tree": tree,
}


def decode(uniforms: Uniforms, target: Table, drafting: Drafting, horizon: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < horizon:
        draft = drafting(uniforms, tokens)
        laws = []
        for node in range(-1, len(draft)):
            before = tokens + tuple(draft.tokens[i] for i in draft.path_to(node))
            laws.append(ExactLaw(target(before), uniforms, len(before)))
        tokens += Coupled()(draft, laws, ExactNoise(uniforms, len(tokens))).tokens(draft)
    return tokens[:horizon]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_emitted_tokens_have_exactly_the_targets_law(draft: str, zeros: float) -> None:
    target = random_table(1, zeros=zeros)
    assert law_of(lambda uniforms: decode(uniforms, target, DRAFTS[draft], 3)) == joint(target, 3)


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_text_is_that_of_plain_decoding_with_the_same_noise(draft: str) -> None:
    target = random_table(1)

    def agree(uniforms: Uniforms) -> bool:
        plain = decode(uniforms, target, DRAFTS["nothing"], 3)
        return decode(uniforms, target, DRAFTS[draft], 3) == plain

    assert law_of(agree) == {True: Fraction(1)}


def test_the_first_child_that_carries_the_token_is_taken() -> None:
    certain = TableLaw(np.array([0.0, 1.0]))
    draft = Draft((0, 1, 1), (-1, -1, -1), (None,) * 3)
    verdict = Coupled()(draft, [certain] * 4, noise=None)
    assert (verdict.path, verdict.next_token) == ((1,), 1)


def test_probes_are_not_descended_into() -> None:
    certain = TableLaw(np.array([0.0, 1.0]))
    draft = Draft((1, 1), (-1, 0), (None, None), probes=1)
    assert Coupled()(draft, [certain] * 3, noise=None).path == (0,)


def test_draws_with_the_same_noise_are_accepted_at_least_as_often_as_the_bound() -> None:
    """2,000 positions: P(match) >= (1 - TV) / (1 + TV), and four standard errors above independent draws."""
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8))
    matches = 0
    for position in range(2000):
        token = TableLaw(q, 3, 0, position).draw()
        matches += len(coupled_verify([token], np.stack([p, p]), seed=3, position=position).path)
    tv = np.abs(p - q).sum() / 2
    error = 4 * 0.5 / np.sqrt(2000)
    assert matches / 2000 > (1 - tv) / (1 + tv) - error
    assert matches / 2000 > p @ q + error


def test_every_rule_declares_what_it_does() -> None:
    assert {name: (rule.lossless, rule.shares_noise, rule.verifies_trees) for name, rule in RULES.items()} == {
        "coupled": (True, True, True),
        "rejection": (True, False, True),
        "block": (True, False, False),
        "traversal": (True, False, True),
        "typical": (False, False, True),
        "lenience": (False, False, False),
        "lenience-greedy": (False, False, False),
    }
    assert all("Lossless:" in (type(rule).__doc__ or "") for rule in RULES.values())
