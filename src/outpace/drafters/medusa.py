"""Heads that guess each later position by themselves from the last hidden state: `medusa` and `blockwise`.

Small and readable: a few matrix products on the engine's kernels, no cache. They do not see the newest token, whose
hidden state the target has not computed yet, and `eagle` does; see train/medusa.py for what each computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from outpace import _native
from outpace.heads.blocks import block_chain, block_tree
from outpace.heads.file import HeadFile
from outpace.heads.loading import drafter_for, output_matrix, packed_matrix, spread
from outpace.heads.session import FeatureSession
from outpace.types import EMPTY, Array, Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt, Target

Rows = NDArray[np.float32]


class MedusaSession(FeatureSession):
    """One request: what is committed, and the last hidden state [H], which no draft uses up."""

    last: Rows | None = None

    def latest(self) -> Rows:
        """Returns the last layer's hidden state [H] before the newest token."""
        hidden, _ = self.pending()
        if len(hidden):
            self.last = hidden[-1, -1].copy()
        assert self.last is not None  # a session drafts only after two tokens, so there is one
        return self.last


class MedusaDrafter:
    """Drafts with `medusa` or `blockwise` heads; no path is longer than there are heads."""

    drafts_trees = True
    self_limiting = True

    def __init__(self, head: HeadFile, output: _native.Matrix, threads: int, kernel: str, vocab_size: int) -> None:
        self.name = head.config.kind
        self.head = head
        self.vocab_size = vocab_size
        self.taps = head.config.taps
        self._output = output
        self._matrices = {name: packed_matrix(head, name) for name in head.matrices}
        self.weight_bytes = output.nbytes + sum(matrix.nbytes for matrix in self._matrices.values())
        self._threads, self._kernel = threads, kernel
        self._tokens: list[int] = head.draft_ids.tolist()

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return MedusaSession(prompt, context, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [self._propose(cast(MedusaSession, session), budget) for session, budget in work]

    def _propose(self, session: MedusaSession, budget: Budget) -> Draft:
        if budget.depth < 1 or budget.nodes < 1 or len(session.committed) < 2:
            return EMPTY
        logits = self._logits(session.latest(), min(budget.depth, self.head.config.block))
        if session.laws.takes_argmax:
            return block_tree(logits, self._tokens, budget)
        return block_chain(session, logits, self._full, budget)

    def _logits(self, hidden: Rows, count: int) -> Rows:
        """Returns [count, D] the logits of the first heads after one hidden state [H]."""
        x = self._normed(hidden[None], self.head.vectors["tap_norms"][-1])
        shared = x if self.name == "medusa" else np.maximum(self._product("expand", x), 0)
        change = np.concatenate([self._product(f"guess_{step}", shared) for step in range(count)])
        if self.name == "medusa":
            change = change / (1 + np.exp(-change))
        y = self._normed(x + change, self.head.vectors["output_norm"][0])
        return self._output.multiply(y, self._kernel, self._threads)

    def _normed(self, x: Rows, weight: Rows) -> Rows:
        scale = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + self.head.config.norm_epsilon)
        return np.ascontiguousarray(x / scale * weight, np.float32)

    def _product(self, name: str, x: Rows) -> Rows:
        return self._matrices[name].multiply(np.ascontiguousarray(x, np.float32), self._kernel, self._threads)

    def _full(self, row: Array) -> Array:
        return spread(self.head.config, self.head.draft_ids, row)


def make(target: Target, draft: Target | None = None, kind: str = "medusa") -> Drafter:
    return drafter_for(
        target,
        kind,
        (kind,),
        lambda head, native: MedusaDrafter(
            head, output_matrix(head, native), native.threads, native.model.kernel, native.vocab_size
        ),
    )


def make_blockwise(target: Target, draft: Target | None = None) -> Drafter:
    return make(target, draft, "blockwise")
