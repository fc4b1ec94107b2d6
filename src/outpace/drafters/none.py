"""Proposes nothing: plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.types import (
    EMPTY,
    Budget,
    Context,
    Draft,
    Drafter,
    DraftSession,
    LawMaker,
    Prompt,
    Scores,
    Step,
    Target,
)


class NoDrafts:
    """Never drafts; also its own session, since it has no state."""

    name = "none"
    drafts_trees = False
    self_limiting = True
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return self

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [EMPTY] * len(work)

    def observe(self, step: Step, scores: Scores) -> None:
        pass

    def close(self) -> None:
        pass


def make(target: Target, draft: Target | None = None) -> Drafter:
    return NoDrafts(target.vocab_size)
