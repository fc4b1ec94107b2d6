"""What a drafter proposes and what becomes of it: the tree of tokens, its budget, its laws, and the verdict on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

Array: TypeAlias = Any
"""An array of the engine: NumPy on the native engine, a torch tensor on the torch engine."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a drafter may propose; depth 0 is plain decoding.

    depth: longest root-to-leaf path, in tokens. nodes: tokens in all. min_path_probability: a drafter that
    knows probabilities stops extending a path once it falls below this. prices: [nodes] the same for each node in
    its turn, for a drafter that adds the most probable node next; () where all have one price. chains: no node
    may have several children. tokens_per_second: what a second is worth, for a drafter that can spend more or
    less of them.
    """

    depth: int
    nodes: int
    min_path_probability: float = 0.0
    prices: tuple[float, ...] = ()
    chains: bool = False
    tokens_per_second: float = 0.0

    @staticmethod
    def chain(length: int) -> Budget:
        """Returns the budget of a chain of at most `length` tokens."""
        return Budget(depth=length, nodes=length)

    def clipped(self, room: int) -> Budget:
        """Returns the budget with paths of at most `room` tokens."""
        if self.depth <= room:
            return self
        depth = max(0, room)
        return replace(self, depth=depth, nodes=self.nodes if depth else 0)

    def node_prices(self) -> tuple[float, ...]:
        """Returns [nodes] the least path probability of each node."""
        return self.prices[: self.nodes] or (self.min_path_probability,) * self.nodes


PLAIN = Budget(depth=0, nodes=0)


class Law(Protocol):
    """What a sampler does after one node; the only place where logits become probabilities."""

    def draw(self) -> int:
        """Returns the token that the plain sampler emits here (its noise is a function of seed and place)."""
        ...

    def probs(self) -> Array:
        """Returns [V] the law after every processor; sums to 1."""
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree of proposed tokens.

    tokens: [N] parents before children; siblings in the order they were drawn, duplicates legal.
    parents: [N] index of the parent node, -1 = the last committed token; a chain is -1, 0, 1, ...
    laws: [N] the law that node i was drawn from, given its ancestors and earlier siblings; None = chosen
        without randomness (a point mass), or by `LawMaker.shared_noise` alone.
    probes: trailing nodes that are scored for the drafter's sake, never verified and never counted.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    laws: tuple[Law | None, ...] = ()
    probes: int = 0

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.parents) == len(self.laws):
            raise ValueError(
                f"a draft needs one parent and one law a token, got {len(self.tokens)} tokens, "
                f"{len(self.parents)} parents, {len(self.laws)} laws"
            )
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < node:
                raise ValueError(f"the parent of node {node} must be in [-1, {node}), got {parent}")

    @staticmethod
    def chain(tokens: Sequence[int], laws: Sequence[Law | None] | None = None) -> Draft:
        """Returns the draft in which every token follows the one before it."""
        n = len(tokens)
        return Draft(tuple(tokens), tuple(range(-1, n - 1)), (None,) * n if laws is None else tuple(laws))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def verified(self) -> int:
        """Nodes that a rule may accept: all but the probes."""
        return len(self.tokens) - self.probes

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def children(self, node: int) -> list[int]:
        """Returns the verified children of `node` (-1 = root) in the order they were drawn."""
        return [i for i in range(self.verified) if self.parents[i] == node]

    def path_to(self, node: int) -> tuple[int, ...]:
        """Returns the nodes from the root to `node`; empty for -1."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return max(depths, default=0)

    def fitting(self, budget: Budget, vocab_size: int) -> Draft:
        """Returns the draft less foreign ids, what the budget does not allow, and the descendants of both."""
        n = len(self.tokens)
        if n == 0:
            return self
        small = n <= min(budget.depth, budget.nodes) and (not budget.chains or self.is_chain)
        if small and min(self.tokens) >= 0 and max(self.tokens) < vocab_size:
            return self
        place = {-1: -1}
        depths = {-1: 0}
        taken: set[int] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            fits = parent in place and depths[parent] < budget.depth and 0 <= token < vocab_size
            alone = not budget.chains or parent not in taken or node >= self.verified
            if fits and alone and len(place) <= budget.nodes:
                taken.add(parent)
                depths[node] = depths[parent] + 1
                place[node] = len(place) - 1
        return self.only([node for node in place if node >= 0])

    def only(self, nodes: Sequence[int]) -> Draft:
        """Returns the draft of these nodes alone, given in their order; the parents of all must be among them."""
        if len(nodes) == len(self.tokens):
            return self
        place = {-1: -1} | {node: i for i, node in enumerate(nodes)}
        return Draft(
            tuple(self.tokens[node] for node in nodes),
            tuple(place[self.parents[node]] for node in nodes),
            tuple(self.laws[node] for node in nodes),
            sum(node >= self.verified for node in nodes),
        )


EMPTY = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted nodes from the root down, and the token after them: a correction, or a bonus at a path's end."""

    path: tuple[int, ...]
    next_token: int

    def tokens(self, draft: Draft) -> tuple[int, ...]:
        """Returns what this verdict commits: the accepted tokens and the next one."""
        if not self.path:
            return (self.next_token,)
        return (*[draft.tokens[node] for node in self.path], self.next_token)

    def cut(self, keep: int, draft: Draft) -> Verdict:
        """Returns the verdict of the step's first `keep` >= 1 tokens: the last kept one becomes `next_token`."""
        if keep > len(self.path):
            return self
        return Verdict(self.path[: keep - 1], draft.tokens[self.path[keep - 1]])
