"""Drafts of a head that others have published (EAGLE, Medusa), beside a target of the torch engine: chains.

The same head serves every rule: a guess is drawn from the head's law after the request's own filters, or is its most
likely token when the request is greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.heads.session import FeatureSession
from outpace.types import EMPTY, Budget, Context, Draft, Drafter, DraftSession, Law, LawMaker, Prompt, Target

Rows = NDArray[np.float32]


class Guesses(Protocol):
    """A request's place in a head, which sees committed features once and guesses token by token."""

    def begin(self, hidden: Rows, tokens: Sequence[int]) -> None: ...

    def next(self, path: Sequence[int]) -> Rows: ...


class Head(Protocol):
    """A head that runs beside a target."""

    name: str
    vocab_size: int
    taps: tuple[int, ...]
    weight_bytes: int
    deepest: int | None

    def open(self) -> Guesses: ...


class PublishedSession(FeatureSession):
    """One request: what is committed, and its place in the head."""

    def __init__(self, guesses: Guesses, prompt: Prompt, context: Context, laws: LawMaker) -> None:
        super().__init__(prompt, context, laws)
        self.guesses = guesses

    def propose(self, depth: int) -> Draft:
        """Returns a chain of at most `depth` tokens."""
        if depth < 1 or len(self.committed) < 2:
            return EMPTY
        self.guesses.begin(*self.pending())
        path: list[int] = []
        laws: list[Law] = []
        while len(path) < depth and self.extend(self.guesses.next(path), path, laws):
            pass
        return Draft.chain(path, laws)


class PublishedDrafter:
    """Drafts chains with a published head; none is longer than the head can guess."""

    name = "published"
    drafts_trees = False
    self_limiting = False

    def __init__(self, head: Head) -> None:
        self.head = head
        self.vocab_size = head.vocab_size
        self.taps = head.taps
        self.weight_bytes = head.weight_bytes

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return PublishedSession(self.head.open(), prompt, context, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        drafts = []
        for session, budget in work:
            depth = min(budget.depth, budget.nodes)
            deepest = depth if self.head.deepest is None else min(depth, self.head.deepest)
            drafts.append(cast(PublishedSession, session).propose(deepest))
        return drafts


def make(target: Target, draft: Any = None) -> Drafter:
    if getattr(draft, "drafter", None) != "published":
        raise UsageError(
            "drafter 'published' needs the folder of an EAGLE or Medusa head: name it with draft=... (--draft DIR)"
        )
    return PublishedDrafter(draft)
