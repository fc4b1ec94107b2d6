"""Drafts from the laws of a block that one pass has given: a tree without randomness, or a chain that is drawn."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from outpace import _native
from outpace.heads.session import FeatureSession
from outpace.types import Array, Budget, Draft, Law

WIDTH = 4
"""Tokens of a position that are looked at."""


def block_tree(logits: Array, tokens: list[int], budget: Budget) -> Draft:
    """Returns the most probable paths under the product of the rows' laws, most probable first.

    logits [positions, D]; tokens [D]: the target's token of each column.
    """
    depth, prices = min(budget.depth, len(logits)), budget.node_prices()
    width = 1 if budget.chains else min(WIDTH, logits.shape[1])
    tops = [_native.top_tokens(row, width) for row in logits[:depth]]
    waiting = [(-probability, 0, -1, place) for place, probability in tops[0]]
    heapq.heapify(waiting)
    drafted: list[int] = []
    parents: list[int] = []
    while waiting and len(drafted) < len(prices):
        rank, position, parent, place = heapq.heappop(waiting)
        if -rank < prices[len(drafted)]:
            break
        drafted.append(tokens[place])
        parents.append(parent)
        if position + 1 < depth:
            for following, probability in tops[position + 1]:
                heapq.heappush(waiting, (rank * probability, position + 1, len(drafted) - 1, following))
    return Draft(tuple(drafted), tuple(parents), (None,) * len(drafted))


def block_chain(session: FeatureSession, logits: Array, full: Callable[[Array], Array], budget: Budget) -> Draft:
    """Returns a chain of tokens drawn from the rows' laws in turn; `full` spreads a row over the vocabulary."""
    path: list[int] = []
    laws: list[Law] = []
    probability, prices = 1.0, budget.node_prices()
    for row in logits[: min(budget.depth, len(prices))]:
        [(_, best)] = _native.top_tokens(row, 1)
        probability *= best
        if probability < prices[len(path)]:  # on the law's own confidence, before anything is drawn
            break
        if not session.extend(full(row), path, laws):
            break
    return Draft.chain(path, laws)
