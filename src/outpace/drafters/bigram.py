"""Unigram and bigram drafts: what mostly stood there, or followed the last token, in fitted texts and the request.

The cheapest drafters that have a law (Leviathan et al. 2023, table 3): tokens are drawn from counts, so any rule can
verify them. With counts of nothing but the request they are what a target's own output teaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
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
    Scores,
    Step,
    Target,
)

UNSEEN = -1e4
"""The logit of a token without a count: never drawn, unless a request allows no other."""


class Counts:
    """How often each token stood anywhere, and after each other token."""

    def __init__(self) -> None:
        self.anywhere: Counter[int] = Counter()
        self.after: dict[int, Counter[int]] = {}

    @staticmethod
    def fit(texts: Iterable[Sequence[int]]) -> Counts:
        """Returns the counts of texts, given as token ids."""
        counts = Counts()
        for text in texts:
            counts.extend(text)
        return counts

    def extend(self, tokens: Sequence[int], before: int | None = None) -> None:
        """Counts tokens that follow `before`."""
        for token in tokens:
            self.anywhere[token] += 1
            if before is not None:
                self.after.setdefault(before, Counter())[token] += 1
            before = token

    def followers(self, token: int, order: int) -> Counter[int]:
        """Returns the counts of what follows a token; order 1 is what stands anywhere."""
        return self.anywhere if order == 1 else self.after.get(token, _NOTHING)


_NOTHING: Counter[int] = Counter()


class CountSession:
    """One request; its own counts grow with it, and those that were fitted stay as they are."""

    def __init__(self, drafter: CountDrafter, prompt: Prompt, laws: LawMaker) -> None:
        self._drafter = drafter
        self._laws = laws
        self._committed = list(prompt.ids)
        self._own = Counts()
        self._own.extend(prompt.ids)

    def propose(self, budget: Budget) -> Draft:
        guesses: list[int] = []
        laws: list[Law] = []
        for _ in range(min(budget.depth, budget.nodes)):
            row = self._row(guesses[-1] if guesses else self._committed[-1])
            if row is None:
                break
            law = self._laws.after(row, self._committed, guesses)
            guesses.append(law.draw())
            laws.append(law)
        return Draft.chain(guesses, laws)

    def _row(self, token: int) -> NDArray[np.float32] | None:
        """Returns [V] log counts after a token, `UNSEEN` without any; None where nothing ever followed it."""
        order, fitted = self._drafter.order, self._drafter.fitted
        counts = self._own.followers(token, order)
        if fitted is not None:
            counts = counts + fitted.followers(token, order)
        if not counts:
            return None
        row = np.full(self._drafter.vocab_size, UNSEEN, np.float32)
        ids = np.fromiter(counts.keys(), np.int64, len(counts))
        row[ids] = np.log(np.fromiter(counts.values(), np.float64, len(counts)))
        return row

    def observe(self, step: Step, scores: Scores) -> None:
        self._own.extend(step.tokens, self._committed[-1])
        self._committed += step.tokens

    def close(self) -> None:
        pass


class CountDrafter:
    """Draws from counts. order: 1 = unigram, 2 = bigram. fitted: counts of other texts, added to the request's."""

    drafts_trees = False
    self_limiting = False
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, vocab_size: int, order: int = 2, fitted: Counts | None = None) -> None:
        if order not in (1, 2):
            raise UsageError(f"order must be 1 (unigram) or 2 (bigram), got {order}")
        self.name = "unigram" if order == 1 else "bigram"
        self.vocab_size = vocab_size
        self.order = order
        self.fitted = fitted
        if (
            fitted is not None
            and fitted.anywhere
            and not 0 <= min(fitted.anywhere) <= max(fitted.anywhere) < vocab_size
        ):
            raise UsageError(
                f"fitted token ids must be in [0, {vocab_size}), got {min(fitted.anywhere)} to {max(fitted.anywhere)}"
            )

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return CountSession(self, prompt, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [cast(CountSession, session).propose(budget) if budget.depth else EMPTY for session, budget in work]


def make(target: Target, draft: Target | None = None) -> Drafter:
    return CountDrafter(target.vocab_size)


def make_unigram(target: Target, draft: Target | None = None) -> Drafter:
    return CountDrafter(target.vocab_size, order=1)
