from __future__ import annotations

from itertools import product

import pytest

from outpace.errors import UsageError
from outpace.theory import costs, speedup, trees

BY_RANK = [[0.6, 0.2, 0.1], [0.5, 0.2], [0.4, 0.1]]


def test_a_chain_is_a_tree() -> None:
    conditionals = [0.8, 0.7, 0.6]
    paths = trees.path_probabilities([-1, 0, 1], conditionals)
    assert trees.tokens_per_step(paths) == pytest.approx(speedup.tokens_per_step_by_position(conditionals))


def test_path_probabilities_multiply_from_the_root() -> None:
    paths = trees.path_probabilities([-1, -1, 0, 0, 1], [0.6, 0.3, 0.5, 0.5, 0.9])
    assert paths == pytest.approx((0.6, 0.3, 0.3, 0.3, 0.27))


def every_tree(depth: int, most: int) -> set[frozenset[tuple[int, ...]]]:
    """Every set of at most `most` nodes, a node being its path of ranks, that holds each node's parent."""
    nodes = [
        path for length in range(1, depth + 1) for path in product(*(range(len(BY_RANK[d])) for d in range(length)))
    ]
    found, frontier = {frozenset[tuple[int, ...]]()}, [frozenset[tuple[int, ...]]()]
    while frontier:
        tree = frontier.pop()
        for node in nodes:
            larger = tree | {node}
            if len(larger) <= most and (len(node) == 1 or node[:-1] in tree) and larger not in found:
                found.add(larger)
                frontier.append(larger)
    return found


@pytest.mark.parametrize("slope", [0.02, 0.08, 0.2])
@pytest.mark.parametrize("draft_cost", [0.0, 0.1])
def test_growth_finds_the_best_of_all_trees(slope: float, draft_cost: float) -> None:
    step = costs.StepCosts(costs.linear(1.0, slope), draft_seconds_per_token=draft_cost)
    best = 1.0
    for tree in every_tree(len(BY_RANK), 5):
        if tree:
            expected = 1.0
            for node in tree:
                path = 1.0
                for depth, rank in enumerate(node):
                    path *= BY_RANK[depth][rank]
                expected += path
            best = max(best, costs.speedup(expected, max(map(len, tree)), step, nodes=len(tree)))
    grown = trees.grow(BY_RANK, step, most_nodes=5)
    assert grown.speedup == pytest.approx(best)
    assert costs.speedup(grown.tokens_per_step, grown.depth, step, len(grown.parents)) == pytest.approx(best)


def test_growth_stops_when_a_node_costs_more_than_it_brings() -> None:
    # T(n + 1) = 1 + 0.15 n: a node pays while P > 0.15 (1 + sum P) / (1 + 0.15 n), so the third, 0.2, does not.
    grown = trees.grow(BY_RANK, costs.StepCosts(costs.linear(1.0, 0.15)), most_nodes=50)
    assert grown.path_probabilities == pytest.approx((0.6, 0.3))
    assert grown.speedup == pytest.approx(1.9 / 1.3)


def test_no_tree_is_grown_where_plain_is_faster() -> None:
    grown = trees.grow([[0.1]], costs.StepCosts(costs.linear(1.0, 0.5)), most_nodes=8)
    assert (grown.parents, grown.speedup, grown.depth, grown.tokens_per_step) == ((), 1.0, 0, 1.0)


def test_free_scoring_takes_every_node() -> None:
    grown = trees.grow(BY_RANK, costs.StepCosts(costs.flat(1.0)), most_nodes=100)
    assert len(grown.parents) == 3 + 3 * 2 + 3 * 2 * 2
    assert grown.tokens_per_step == pytest.approx(1 + 0.9 + 0.9 * 0.7 + 0.9 * 0.7 * 0.5)


def test_nodes_come_after_their_parents_and_siblings_in_order() -> None:
    grown = trees.grow(BY_RANK, costs.StepCosts(costs.flat(1.0)), most_nodes=12)
    assert all(parent < node for node, parent in enumerate(grown.parents))
    assert list(grown.path_probabilities) == sorted(grown.path_probabilities, reverse=True)


def test_best_size_cuts_the_least_probable_nodes() -> None:
    step = costs.StepCosts(costs.linear(1.0, 0.1))
    size, gain = trees.best_size([0.05, 0.8, 0.6, 0.02], step, draft_passes=0)
    assert size == 2
    assert gain == pytest.approx(2.4 / 1.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trees.path_probabilities([0], [0.5]), r"parent of node 0 must be in \[-1, 0\), got 0"),
        (lambda: trees.path_probabilities([-1], []), "one conditional acceptance a node, got 0 for 1"),
        (lambda: trees.path_probabilities([-1, -1], [0.7, 0.7]), "siblings exclude each other"),
        (lambda: trees.grow([[0.7, 0.7]], costs.StepCosts(costs.flat(1.0)), 3), "at depth 1 must sum to 1 at most"),
        (lambda: trees.grow([[0.7]], costs.StepCosts(costs.flat(1.0)), -1), "most_nodes must be a whole number"),
        (lambda: trees.tokens_per_step([1.2]), "path probability of node 0 must be in"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
