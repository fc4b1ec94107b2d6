"""Trees of drafted tokens: what one commits, and how large it should be for a measured scoring cost.

A node's path probability P(v) is the product of the conditional acceptances from the root to it. A step commits
1 + sum_v P(v) tokens whatever the dependence between nodes, since siblings exclude each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.errors import UsageError
from outpace.theory import checks
from outpace.theory.costs import StepCosts, speedup


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree in the order it was grown.

    parents: [N] index of the parent node, -1 = the last committed token. ranks: [N] 0 for the drafter's first
    choice after the parent, 1 for its second. path_probabilities: [N] non-increasing.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    path_probabilities: tuple[float, ...]
    speedup: float

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens a step commits, the next token included."""
        return tokens_per_step(self.path_probabilities)

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        return max(_depths(self.parents), default=0)


def tokens_per_step(path_probabilities: Sequence[float]) -> float:
    """Returns 1 + sum_v P(v): the expected tokens of a step (Sequoia, Chen et al., arXiv 2402.12374, section 3)."""
    for node, probability in enumerate(path_probabilities):
        checks.fraction(f"path probability of node {node}", probability)
    return 1.0 + sum(path_probabilities)


def path_probabilities(parents: Sequence[int], conditional_acceptances: Sequence[float]) -> tuple[float, ...]:
    """Returns [N] P(v): the product of the conditional acceptances on the way from the root to each node.

    conditional_acceptances: [N] P(v accepted | its parent was). Raises UsageError where a parent does not come
    before its child, or where the children of one node are accepted with more than probability 1 together.
    """
    _depths(parents)
    if len(parents) != len(conditional_acceptances):
        raise UsageError(
            "a tree needs one conditional acceptance a node, got "
            f"{len(conditional_acceptances)} for {len(parents)} nodes"
        )
    paths: list[float] = []
    used: dict[int, float] = {}
    for node, (parent, alpha) in enumerate(zip(parents, conditional_acceptances, strict=True)):
        checks.fraction(f"conditional acceptance of node {node}", alpha)
        used[parent] = used.get(parent, 0.0) + alpha
        if used[parent] > 1.0 + 1e-9:
            raise UsageError(
                f"the children of node {parent} must be accepted with probability 1 at most together, "
                f"got {used[parent]:.6g}: siblings exclude each other"
            )
        paths.append(alpha * (1.0 if parent < 0 else paths[parent]))
    return tuple(paths)


def best_size(path_probabilities: Sequence[float], costs: StepCosts, draft_passes: int) -> tuple[int, float]:
    """Returns (n, speed-up): how many of the most probable nodes to score, 0 for plain decoding.

    Sorted by P(v), nodes are worth adding while (1 + sum P) T(1) / (T(n + 1) + D + overhead) increases; every n
    is tried, since a measured T(n) may jump. draft_passes: the drafter's passes for the whole tree, a cost that n
    does not change. Any prefix of the sorted nodes is a tree: no node is more probable than its parent.
    """
    tokens_per_step(path_probabilities)
    best, expected = (0, 1.0), 1.0
    for n, probability in enumerate(sorted(path_probabilities, reverse=True), 1):
        expected += probability
        gain = speedup(expected, draft_passes, costs, nodes=n)
        if gain > best[1]:
            best = (n, gain)
    return best


def grow(acceptance_by_rank: Sequence[Sequence[float]], costs: StepCosts, most_nodes: int) -> Tree:
    """Returns the tree of at most `most_nodes` nodes with the greatest speed-up; an empty one where plain is faster.

    acceptance_by_rank[d][r]: P(the drafter's choice r at depth d + 1 is the target's token | the path so far is),
    the same after every path (as calibrated for Medusa, arXiv 2401.10774, section 2.3.3, and Sequoia, arXiv
    2402.12374). Within a depth the best n nodes are the n with the greatest path probabilities, so one best-first
    growth a depth visits the optimum of every size; each is weighed with T(n + 1) and one draft pass a level.
    """
    checks.count("most_nodes", most_nodes, 0, "nodes")
    for depth, row in enumerate(acceptance_by_rank, 1):
        for rank, alpha in enumerate(row):
            checks.fraction(f"acceptance of choice {rank} at depth {depth}", alpha)
        if sum(row) > 1.0 + 1e-9:
            raise UsageError(f"the acceptances at depth {depth} must sum to 1 at most, got {sum(row):.6g}")
    best = Tree((), (), (), 1.0)
    for levels in range(1, len(acceptance_by_rank) + 1):
        tree = _best_prefix(_best_first(acceptance_by_rank[:levels], most_nodes), costs, levels)
        best = max(best, tree, key=lambda candidate: candidate.speedup)  # the shallower of equals
    return best


def _best_first(acceptance_by_rank: Sequence[Sequence[float]], most_nodes: int) -> list[tuple[int, int, float]]:
    """Returns (parent, rank, P) of the most probable nodes, most probable first, parents before children."""
    nodes: list[tuple[int, int, float]] = []
    frontier: list[tuple[float, int, int, int, int]] = []  # (-P, order, parent, depth, rank)
    pushed = 0

    def push(parent: int, parent_probability: float, depth: int) -> None:
        nonlocal pushed
        for rank, alpha in enumerate(acceptance_by_rank[depth] if depth < len(acceptance_by_rank) else ()):
            if alpha > 0.0:
                heapq.heappush(frontier, (-parent_probability * alpha, pushed, parent, depth, rank))
                pushed += 1

    push(-1, 1.0, 0)
    while frontier and len(nodes) < most_nodes:
        negative, _, parent, depth, rank = heapq.heappop(frontier)
        nodes.append((parent, rank, -negative))
        push(len(nodes) - 1, -negative, depth + 1)
    return nodes


def _best_prefix(nodes: Sequence[tuple[int, int, float]], costs: StepCosts, levels: int) -> Tree:
    size, gain = best_size([probability for _, _, probability in nodes], costs, levels)
    kept = nodes[:size]
    return Tree(tuple(n[0] for n in kept), tuple(n[1] for n in kept), tuple(n[2] for n in kept), gain)


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise UsageError(f"the parent of node {node} must be in [-1, {node}), got {parent}")
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths
