"""A head that proposes a whole block in one pass: the last token's row, and a mask row for each token after it.

Its kernels read the weights once for all rows, so a block costs what one `eagle` step does; but no row knows what the
ones before it proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from outpace.heads.blocks import block_chain, block_tree
from outpace.heads.loading import LoadedHead, drafter_for, load_head
from outpace.heads.session import FeatureSession
from outpace.types import EMPTY, Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt, Target


class ParallelSession(FeatureSession):
    """One request: what is committed, and the head's cache of it."""

    def __init__(self, head: LoadedHead, prompt: Prompt, context: Context, laws: LawMaker) -> None:
        super().__init__(prompt, context, laws)
        self.native = head.layer.open()

    def close(self) -> None:
        self.native.close()


class ParallelDrafter:
    """Drafts with a `parallel` head; no path is longer than the block that it was trained for."""

    name = "parallel"
    drafts_trees = True
    self_limiting = True

    def __init__(self, head: LoadedHead, vocab_size: int) -> None:
        self.head = head
        self.vocab_size = vocab_size
        self.taps = head.config.taps
        self.weight_bytes = head.layer.pass_bytes
        self._tokens: list[int] = head.draft_ids.tolist()

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return ParallelSession(self.head, prompt, context, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [self._propose(cast(ParallelSession, session), budget) for session, budget in work]

    def _propose(self, session: ParallelSession, budget: Budget) -> Draft:
        if budget.depth < 1 or budget.nodes < 1 or len(session.committed) < 2:
            return EMPTY
        ahead = min(budget.depth, self.head.config.block) - 1
        logits = self.head.layer.begin(session.native, *session.pending(), ahead=ahead)
        if session.laws.takes_argmax:
            return block_tree(logits, self._tokens, budget)
        return block_chain(session, logits, self.head.full, budget)


def make(target: Target, draft: Target | None = None) -> Drafter:
    return drafter_for(
        target,
        "parallel",
        ("parallel",),
        lambda head, native: ParallelDrafter(load_head(head, native), native.vocab_size),
    )
