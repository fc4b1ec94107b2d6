"""What the rules are tried on: pairs of laws, and ways of drafting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.audit.drafting import (
    BRANCHES,
    SIBLINGS,
    THREE_SIBLINGS,
    TWO_PATHS,
    chain_from,
    choosing,
    fixed_tree,
    sharing_noise,
    tree_from,
)
from outpace.audit.enumerate import Drafting, Probs, Table, Tokens, fractions, one_hot, random_table
from outpace.types import Rule


@dataclass(frozen=True, slots=True)
class Pair:
    """A target's law and a drafter's, over one small vocabulary."""

    name: str
    target: Table
    draft: Table


@dataclass(frozen=True, slots=True)
class Case:
    """A way of drafting. sizes: nodes drafted in each round. horizon: tokens whose joint law is compared.

    large: it has too many outcomes for more than three tokens.
    """

    name: str
    drafting: Callable[[Table], Drafting]
    sizes: tuple[int, ...]
    horizon: int
    tree: bool = False
    shares_noise: bool = False
    large: bool = False

    def fits(self, rule: Rule, pair: Pair) -> bool:
        """Returns whether the rule takes such drafts, and the vocabulary is small enough."""
        takes = (rule.verifies_trees or not self.tree) and (rule.shares_noise or not self.shares_noise)
        return takes and not (self.large and len(pair.target(())) > 3)


def _disjoint(tokens: Tokens) -> Probs:
    return fractions([0, 0, 1]) if len(tokens) % 2 else fractions([0, 1, 3])


def _sum_mod_3(tokens: Tokens) -> int:
    return sum(tokens) % 3


PAIRS = (
    Pair("random", random_table(1), random_table(2)),
    Pair("random, 4 tokens", random_table(10, 4), random_table(11, 4)),
    Pair("many zeros", random_table(3, zeros=0.5), random_table(4, zeros=0.5)),
    Pair("ties", random_table(5, levels=2), random_table(6, levels=2)),
    Pair("the same law", random_table(7), random_table(7)),
    Pair("disjoint supports", lambda _: one_hot(0), _disjoint),
    Pair("one-hot target", lambda tokens: one_hot(len(tokens) % 3), random_table(8)),
    Pair("one-hot draft law", random_table(9), lambda tokens: one_hot(_sum_mod_3(tokens))),
    Pair("both one-hot", lambda tokens: one_hot(len(tokens) % 3), lambda tokens: one_hot(_sum_mod_3(tokens))),
    Pair("far apart", lambda _: fractions([1, 10, 100]), lambda _: fractions([100, 10, 1])),
)

DEEP = (-1, -1, 0, 0, 1, 2)
"""Two siblings; two below the first, one below the second; one more at depth 3."""
DUPLICATES = (-1, -1, -1, 0, 1, 2)
"""Three siblings, and one below each."""

CASES = (
    Case("empty draft", chain_from, (0,), 2),
    *(Case(f"chain of {n}", chain_from, (n,), n + 1) for n in (1, 2, 3)),
    Case("two rounds of 2", chain_from, (2, 2), 4, large=True),
    Case("a round of 1, then 3", chain_from, (1, 3), 4, large=True),
    Case("chosen chain of 3", lambda _: choosing(_sum_mod_3), (3,), 4),
    Case("chosen chains, two rounds", lambda _: choosing(_sum_mod_3), (2, 2), 4),
    Case("chain of 3, the target's noise", sharing_noise, (3,), 4, shares_noise=True),
    Case("the same, two rounds of 2", sharing_noise, (2, 2), 4, shares_noise=True, large=True),
    Case("2 siblings without replacement", lambda q: tree_from(q, SIBLINGS), (2,), 2, tree=True),
    Case("3 siblings without replacement", lambda q: tree_from(q, THREE_SIBLINGS), (3,), 2, tree=True),
    Case("3 siblings, independent", lambda q: tree_from(q, THREE_SIBLINGS, replacement=True), (3,), 2, tree=True),
    Case("1 sibling chosen, 2 drawn", lambda q: tree_from(q, THREE_SIBLINGS, chosen=1), (3,), 2, tree=True),
    Case("branches without replacement", lambda q: tree_from(q, BRANCHES), (4,), 3, tree=True),
    Case("branches, independent", lambda q: tree_from(q, BRANCHES, replacement=True), (4,), 3, tree=True),
    Case("two paths without replacement", lambda q: tree_from(q, TWO_PATHS), (4,), 3, tree=True),
    Case("tree of depth 3", lambda q: tree_from(q, DEEP), (6,), 4, tree=True, large=True),
    Case(
        "chosen tree with duplicates", lambda _: fixed_tree((0, 1, 1, 2, 0, 0), DEEP), (6,), 4, tree=True, large=True
    ),
    Case("siblings, two rounds", lambda q: tree_from(q, SIBLINGS), (2, 2), 4, tree=True, large=True),
)
