"""A drafter of small sampled trees, so that the rules for trees meet a real model: two siblings, two below the first.

Siblings are drawn without replacement. With Gumbel noise the runner-up is a draw from the law less the winner: its
row keeps only tokens that the first could have been, so that filters cannot let in one whose noise is unconditioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from outpace.drafters.model import ModelDrafter, ModelSession
from outpace.types import EMPTY, Array, Budget, Draft, DraftSession, Law

SIBLINGS = 2


class BranchingDrafter(ModelDrafter):
    """Drafts (-1, -1, 0, 0) with a model, less what a budget leaves out."""

    drafts_trees = True

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [self._propose(cast(ModelSession, session), budget) for session, budget in work]

    def _propose(self, session: ModelSession, budget: Budget) -> Draft:
        if not budget.depth:
            return EMPTY
        session.begin(budget.depth)
        draft = _below(session, EMPTY, -1, self._row(session, ()), budget.nodes)
        if budget.depth > 1 and len(draft) < budget.nodes:
            draft = _below(session, draft, 0, self._row(session, draft.tokens[:1]), budget.nodes - len(draft))
        return draft

    def _row(self, session: ModelSession, path: Sequence[int]) -> Array:
        """Returns [V] the model's row after a path of guesses; nothing of it is kept."""
        unseen = Draft.chain([*session.pending.tokens, *path])
        [scores] = self.model.score_many([(session.opened, unseen)])
        return np.array(self._fitted(scores.logits[-1]), dtype=np.float32)


def _below(session: ModelSession, draft: Draft, parent: int, row: Array, most: int) -> Draft:
    """Returns the draft with up to SIBLINGS more nodes below a parent."""
    path = [draft.tokens[node] for node in draft.path_to(parent)]
    for _ in range(min(SIBLINGS, most)):
        if not (row > -np.inf).any():
            break
        law: Law = session.laws.after(row, session.committed, path)
        token = law.draw()
        draft = Draft((*draft.tokens, token), (*draft.parents, parent), (*draft.laws, law))
        row = np.where(law.probs() > 0, row, np.float32(-np.inf)).astype(np.float32)
        row[token] = -np.inf
    return draft
