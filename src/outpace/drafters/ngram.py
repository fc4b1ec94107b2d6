"""Copies what followed the same words before, as prompt lookup does: longest recent match over prompt and output.

The history is indexed by its last one, two and three tokens, each to the place where they ended last; places
that end in the same three tokens are chained, newest first, as in LZ77. So a token costs three dictionary
entries, and a search looks at no more than `CANDIDATES` places, however long the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from outpace.errors import UsageError
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

CANDIDATES = 16
LONGEST = 12
"""Matches are told apart up to this length."""

ACCEPTANCE = (0.0, 0.26, 0.52, 0.62, 0.70, 0.75, 0.77, 0.78, 0.79, 0.80, 0.82, 0.87, 0.94)
"""[LONGEST + 1] how often the next token is right after a match of n tokens; a request then learns its own."""

PRIOR_WEIGHT = 8.0
"""The table above counts as this many observations."""

FADE_AFTER, FADE = 16, 0.84
"""Every so many committed tokens observations lose weight, to half in 64: what failed once is tried again."""


class History:
    """Prompt and output, and where each n-gram ended last."""

    def __init__(self, tokens: Sequence[int], min_match: int) -> None:
        self.tokens = list(tokens)
        self._min_match = min_match
        self._indexed = 0
        self._ones: dict[int, int] = {}
        self._twos: dict[tuple[int, int], int] = {}
        self._threes: dict[tuple[int, int, int], int] = {}
        self._earlier: list[int] = []  # [i] the place before i that ends in the same three tokens, or -1

    def _index(self) -> None:
        """Enters all but the last token, whose own place must not be found as its match."""
        tokens, ones, twos, threes, earlier = self.tokens, self._ones, self._twos, self._threes, self._earlier
        start = self._indexed
        a = tokens[start - 2] if start > 1 else -1
        b = tokens[start - 1] if start else -1
        for place in range(start, len(tokens) - 1):
            c = tokens[place]
            key = (a, b, c)
            earlier.append(threes.get(key, -1))
            threes[key] = twos[b, c] = ones[c] = place
            a, b = b, c
        self._indexed = max(start, len(tokens) - 1)

    def match(self) -> tuple[int, int]:
        """Returns (length, place): how many last tokens recur, up to LONGEST, and where the recurrence ended.

        The longest wins, and of equals the most recent; (0, -1) when there is none of `min_match` tokens.
        """
        self._index()
        tokens = self.tokens
        n = len(tokens)
        best, found = 0, -1
        if n >= 4:
            place = self._threes.get((tokens[-3], tokens[-2], tokens[-1]), -1)
            for _ in range(CANDIDATES):
                if place < 2:
                    break
                length = 3
                most = min(LONGEST, place + 1)
                while length < most and tokens[place - length] == tokens[n - 1 - length]:
                    length += 1
                if length > best:
                    best, found = length, place
                    if length == LONGEST:
                        break
                place = self._earlier[place]
        if not best and n >= 3:
            found = self._twos.get((tokens[-2], tokens[-1]), -1)
            best = 2 if found >= 0 else 0
        if not best and n >= 2:
            found = self._ones.get(tokens[-1], -1)
            best = 1 if found >= 0 else 0
        return (best, found) if best >= self._min_match else (0, -1)

    def following(self, place: int, count: int) -> list[int]:
        """Returns the `count` tokens after `place`; past the end it goes on with what it copied, so loops unroll."""
        copied = self.tokens[place + 1 : place + 1 + count]
        while len(copied) < count:
            copied += copied[: count - len(copied)]
        return copied


class NGramSession:
    """One request: its history, and how often matches of each length were right in it.

    After i accepted tokens a match of n tokens is one of n + i, so one table by length serves every position.
    """

    def __init__(self, tokens: Sequence[int], min_match: int) -> None:
        self.history = History(tokens, min_match)
        self.acceptance = list(ACCEPTANCE)  # [LONGEST + 1] as learnt so far
        self._right = [0.0] * (LONGEST + 1)
        self._tried = [0.0] * (LONGEST + 1)
        self._until_fade = FADE_AFTER
        self._matched = 0

    def propose(self, budget: Budget) -> Draft:
        depth = min(budget.depth, budget.nodes)
        self._matched = 0
        if depth <= 0:
            return EMPTY
        length, place = self.history.match()
        if not length:
            return EMPTY
        if budget.min_path_probability > 0:
            depth = self._worthwhile(length, depth, budget.min_path_probability)
            if not depth:
                return EMPTY
        self._matched = length
        return Draft.chain(self.history.following(place, depth))

    def _worthwhile(self, length: int, depth: int, least: float) -> int:
        """Returns how many tokens have a path probability of at least `least`."""
        acceptance, path = self.acceptance, 1.0
        for i in range(depth):
            path *= acceptance[min(length + i, LONGEST)]
            if path < least:
                return i
        return depth

    def observe(self, step: Step, scores: Scores) -> None:
        if self._matched and step.drafted:
            accepted = step.accepted
            for i in range(accepted):
                self._learn(min(self._matched + i, LONGEST), True)
            if accepted < step.drafted and not step.finish:
                self._learn(min(self._matched + accepted, LONGEST), False)
        self._matched = 0
        self.history.tokens += step.tokens
        self._until_fade -= len(step.tokens)
        if self._until_fade <= 0:
            self._fade()

    def _learn(self, length: int, right: bool) -> None:
        self._right[length] += right
        self._tried[length] += 1
        self._estimate(length)

    def _estimate(self, length: int) -> None:
        right, tried = self._right[length], self._tried[length]
        self.acceptance[length] = (PRIOR_WEIGHT * ACCEPTANCE[length] + right) / (PRIOR_WEIGHT + tried)

    def _fade(self) -> None:
        self._until_fade = FADE_AFTER
        for length in range(1, LONGEST + 1):
            if self._tried[length]:
                self._right[length] *= FADE
                self._tried[length] *= FADE
                self._estimate(length)

    def close(self) -> None:
        pass


class NGramDrafter:
    """Drafts what followed the longest recent match of the last tokens.

    min_match: shortest match that is drafted from, in [1, LONGEST].
    """

    name = "ngram"
    drafts_trees = False
    self_limiting = True
    copies_expected = True
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, vocab_size: int, min_match: int = 1) -> None:
        if not 1 <= min_match <= LONGEST:
            raise UsageError(f"min_match must be in [1, {LONGEST}], got {min_match}")
        self.vocab_size = vocab_size
        self._min_match = min_match

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        # An encoder's source is copied from, too, where it is ids: translations keep names and numbers.
        source = prompt.source if isinstance(prompt.source, tuple) else ()
        return NGramSession((*source, *prompt.copyable(LONGEST)), self._min_match)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [cast(NGramSession, session).propose(budget) for session, budget in work]


def make(target: Target, draft: Target | None = None) -> Drafter:
    return NGramDrafter(target.vocab_size)
