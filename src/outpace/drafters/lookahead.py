"""Lookahead decoding (arXiv 2402.02057), small: the target's own earlier guesses, kept as n-grams, are its drafts.

Beside each draft a chain of guesses is scored that nobody verifies (`Draft.probes`). What the target says after each
of them is its guess for the next place: one step of Jacobi's iteration. A guess, the answer to it, the answer to that
in the next round, and so on, make an n-gram; one that begins with the last token is drafted.

A probe costs a row of the target's pass, and most n-grams are of text that never comes: this is here to be read.
Where anything in a text recurs, `suffix` has it without a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from array_api_compat import array_namespace

from outpace.types import (
    EMPTY,
    Array,
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

WINDOW = 5
"""Guesses that are scored as probes at most."""

GRAM = 4
"""Tokens of an n-gram: the one that it is found by, and those that are drafted."""

KEPT = 4
"""N-grams of one first token that are remembered, the newest first."""


class LookaheadSession:
    """One request. window: guesses for the places after the last token. rows: what was asked in the rounds before, at
    the same places, the newest last. pool: what followed a token in n-grams, the newest first."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.committed = list(ids)
        self.window: list[int] = []
        self.rows: list[list[int]] = []
        self.pool: dict[int, list[tuple[int, ...]]] = {}

    def propose(self, budget: Budget) -> Draft:
        room = min(budget.depth, budget.nodes)
        if room <= 0:
            return EMPTY
        grams = self.pool.get(self.committed[-1])
        tokens = list(grams[0][: max(1, room // 2)]) if grams else []
        guesses = [*self.window, *self.committed[-WINDOW:]][:WINDOW]  # where nothing is known, what was said last
        probes = [] if tokens and budget.chains else guesses[: min(room, budget.nodes - len(tokens))]
        n, m = len(tokens), len(probes)
        parents = (*range(-1, n - 1), -1, *range(n, n + m - 1))[: n + m]
        return Draft((*tokens, *probes), parents, (None,) * (n + m), probes=m)

    def observe(self, step: Step, scores: Scores) -> None:
        draft = step.draft
        if draft.probes and len(scores.logits) == len(draft) + 1:
            self._learn(draft.tokens[draft.verified :], scores.logits[draft.verified + 1 :])
        else:
            self.window, self.rows = [], []
        self.committed += step.tokens
        gone = len(step.tokens)
        self.window = self.window[gone:][:WINDOW]
        self.rows = [row[gone:] for row in self.rows]

    def _learn(self, asked: Sequence[int], logits: Array) -> None:
        """Takes over the answers to a window: [len(asked), V]. Answer i is the next guess for place i + 1."""
        answers = [int(token) for token in array_namespace(logits).argmax(logits, axis=-1)]
        following = [asked[0], *answers]
        self.rows = [*self.rows, list(asked)][-(GRAM - 1) :]
        rounds = [*self.rows, following]
        if len(rounds) == GRAM:
            # Place i of the oldest round, i + 1 of the next, ...: each was the answer to the one before.
            for place in range(min(len(row) - i for i, row in enumerate(rounds))):
                self._keep([row[place + i] for i, row in enumerate(rounds)])
        self.window = following

    def _keep(self, gram: Sequence[int]) -> None:
        rest = tuple(gram[1:])
        known = self.pool.get(gram[0], ())
        self.pool[gram[0]] = [rest, *(other for other in known if other != rest)][:KEPT]

    def close(self) -> None:
        pass


class LookaheadDrafter:
    """Drafts n-grams of the target's own guesses."""

    name = "lookahead"
    drafts_trees = True
    self_limiting = False
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return LookaheadSession(prompt.ids)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [cast(LookaheadSession, session).propose(budget) for session, budget in work]


def make(target: Target, draft: Target | None = None) -> Drafter:
    return LookaheadDrafter(target.vocab_size)
