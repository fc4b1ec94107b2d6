"""A head on the target's own features drafts a small tree, token by token or level by level.

The head's cache holds a row for each committed token but the first: that token with the target's hidden states before
it. A draft begins with the last of them and grows best-first: at each level the most probable nodes get their most
probable continuations, until the budget is spent, no path is left that is probable enough, or all are as long as the
block that the head was trained for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from outpace import _native
from outpace.heads.loading import LoadedHead, drafter_for, load_head
from outpace.heads.session import FeatureSession
from outpace.types import (
    EMPTY,
    Budget,
    Context,
    Draft,
    Drafter,
    DraftSession,
    Law,
    LawMaker,
    Prompt,
    Target,
)

WIDTH = 4
"""Continuations of a node that are looked at."""

BEAM = 2
"""Nodes of a level that are continued: a pass of the head over a few rows costs what one over one row costs."""

WORTH_A_PASS = 0.1
"""A level is continued while its most probable path is at least this probable: a pass of the head costs about a
twentieth of the target's, and brings a token with the probability of the path times that of its continuation."""

WORTH_A_ROW = 0.03
"""A path less probable than this does not pay for its row of the target's pass, whatever the budget allows."""

ACCEPTED_ANYWAY = 0.2
"""A drawn token is accepted with about this plus 0.8 times the law's largest probability, since target and draft draw
with the same noise: measured on the embedded model's head, 0.34 at 0.15 and 0.93 at 0.95."""


class HeadSession(FeatureSession):
    """One request: what is committed, and the head's cache of it."""

    def __init__(self, head: LoadedHead, prompt: Prompt, context: Context, laws: LawMaker) -> None:
        super().__init__(prompt, context, laws)
        self.native = head.layer.open()

    def close(self) -> None:
        self.native.close()


class EagleDrafter:
    """Drafts trees with an `eagle` head: after each level the nodes' rows are one more pass of its layer."""

    drafts_trees = True
    self_limiting = True

    def __init__(self, head: LoadedHead, vocab_size: int) -> None:
        self.name = head.config.kind
        self.head = head
        self.vocab_size = vocab_size
        self.taps = head.config.taps
        self.weight_bytes = head.layer.pass_bytes

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return HeadSession(self.head, prompt, context, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [self._propose(cast(HeadSession, session), budget) for session, budget in work]

    def _propose(self, session: HeadSession, budget: Budget) -> Draft:
        if budget.depth < 1 or budget.nodes < 1 or len(session.committed) < 2:
            return EMPTY
        if session.laws.takes_argmax:
            return self._tree(session, budget)
        return self._drawn(session, budget)

    def _tree(self, session: HeadSession, budget: Budget) -> Draft:
        """Returns the most probable paths; nothing is drawn."""
        prices = tuple(max(price, WORTH_A_ROW) for price in budget.node_prices())
        hidden, tokens = session.pending()
        width, beam = (1, 1) if budget.chains else (WIDTH, BEAM)
        depth = min(budget.depth, self.head.config.block)
        drafted, parents, _ = self.head.layer.draft(
            session.native, hidden, tokens, depth, width, beam, WORTH_A_PASS, prices
        )
        return Draft(tuple(drafted), tuple(parents), (None,) * len(drafted))

    def _drawn(self, session: HeadSession, budget: Budget) -> Draft:
        """Returns a chain, each token drawn from the head's law after the request's own filters."""
        logits = self.head.layer.begin(session.native, *session.pending())
        path: list[int] = []
        laws: list[Law] = []
        probability = 1.0
        prices = budget.node_prices()
        while len(path) < min(budget.depth, len(prices), self.head.config.block):
            if path and probability < WORTH_A_PASS:
                break
            if path:
                logits = self.head.layer.grow(session.native, [len(path) - 2], path[-1:])
            [(_, best)] = _native.top_tokens(logits[0], 1)
            probability *= ACCEPTED_ANYWAY + (1 - ACCEPTED_ANYWAY) * best
            if probability < max(
                prices[len(path)], WORTH_A_ROW
            ):  # on the law's own confidence, before anything is drawn from it
                break
            if not session.extend(self.head.full(logits[0]), path, laws):
                break
        return Draft.chain(path, laws)


def make(target: Target, draft: Target | None = None) -> Drafter:
    return drafter_for(
        target, "eagle", ("eagle",), lambda head, native: EagleDrafter(load_head(head, native), native.vocab_size)
    )
