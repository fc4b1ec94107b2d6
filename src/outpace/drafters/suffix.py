"""Drafts what most often followed the same words, in this request and in a store of others where one is asked for.

Every context of one to `OWN_DEPTH` last tokens has a say (`contexts.py`), so a draft is a tree of likely
continuations with path probabilities that can be believed, and grows exactly while its next node is worth a row of
the target's pass. After Oliaro et al. 2024 (SuffixDecoding), whose scores are counts of the longest match alone.
Where the target's tokens are drawn with noise that can be looked at, it decides among what is likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, cast

from outpace.contexts import OWN_PRIOR, SLOTS, STORE_PRIOR, Counts, DrawNoise, Growth, continuations, new_counts
from outpace.estimates import Calibration
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

Layers: TypeAlias = Sequence[tuple[Counts, float]]
"""Counts, each with the weight of what came before it, the least specific first."""

OWN_DEPTH = 8
"""Longest context within the request; with 12 nothing is gained, with 5 long copies are drafted too short."""


class Store(Protocol):
    """Texts of other requests. learns: it takes this request's, too."""

    learns: bool

    @property
    def counts(self) -> Counts: ...

    def add(self, text: Sequence[int], first: int = 0) -> None: ...


class SuffixSession:
    """One request: its tokens, counted when the first draft is asked for.

    noise: `LawMaker.shared_noise`. before: tokens of `prompt` in front of the request's own, which have no place.
    """

    def __init__(
        self, prompt: Sequence[int], stores: Sequence[Store], noise: tuple[int, int] | None = None, before: int = 0
    ) -> None:
        self._tokens = list(prompt)
        self._noise = noise
        self._before = before
        self._prompt_length = len(prompt)
        self._stores = stores
        self._counts: Counts | None = None
        self._counted = 0
        self._grown = Growth((), (), ())
        self._calibration = Calibration()
        self._closed = False

    def propose(self, budget: Budget) -> Draft:
        self._grown = Growth((), (), ())
        if not budget.depth or not budget.nodes:
            return EMPTY
        if self._counts is None:
            self._counts = new_counts(OWN_DEPTH)
        start = max(0, self._counted - OWN_DEPTH)
        self._counts.feed(self._tokens[start:], self._counted - start)
        self._counted = len(self._tokens)
        layers = [*((store.counts, STORE_PRIOR) for store in self._stores), (self._counts, OWN_PRIOR)]
        self._grown = self._grow(
            layers,
            budget,
            self._calibration.odds if budget.prices else 1.0,  # a fixed length depends on the text alone
            None if self._noise is None else DrawNoise(*self._noise, len(self._tokens) - self._before),
        )
        return Draft(self._grown.tokens, self._grown.parents, (None,) * len(self._grown.tokens))

    def _grow(self, layers: Layers, budget: Budget, odds: float, noise: DrawNoise | None) -> Growth:
        width = 1 if budget.chains else SLOTS
        tail = self._tokens[-OWN_DEPTH:]
        return continuations(layers, tail, budget.depth, budget.node_prices(), width, odds, noise)

    def gain(self, prices: Sequence[float]) -> float:
        """Returns what the last proposal is expected to gain, in tokens."""
        return expected_gain(self._grown, prices)

    def observe(self, step: Step, scores: Scores) -> None:
        if self._grown.tokens:
            self._score(step.tokens)
            self._grown = Growth((), (), ())
        self._tokens += step.tokens

    def _score(self, emitted: Sequence[int]) -> None:
        """Compares the last proposal with what came, whoever's draft was verified."""
        tokens, parents, probs = self._grown
        right, expected, node = 0, 0.0, -1
        for token in emitted:
            parent, node = node, -1
            for child in range(parent + 1, len(tokens)):  # children come after their parent
                if parents[child] == parent:
                    expected += probs[child]
                    if tokens[child] == token:
                        node = child
            if node < 0:
                break
            right += 1
        self._calibration.observe(right, expected)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for store in self._stores:
                if store.learns:
                    store.add(self._tokens, self._prompt_length)


def expected_gain(grown: Growth, prices: Sequence[float]) -> float:
    """Returns what a tree is expected to gain, in tokens: path probabilities less the rows' prices."""
    paths: list[float] = []
    for parent, prob in zip(grown.parents, grown.probs, strict=True):
        paths.append(prob if parent < 0 else prob * paths[parent])
    return sum(paths) - sum(prices[: len(paths)])


class SuffixDrafter:
    """Drafts the likely continuations of the last tokens.

    stores: texts of other requests, the least specific first; by default none.
    """

    name = "suffix"
    drafts_trees = True
    self_limiting = True
    copies_expected = True
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, vocab_size: int, stores: Sequence[Store] = ()) -> None:
        self.vocab_size = vocab_size
        self._stores = tuple(stores)

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        text = prompt.copyable(OWN_DEPTH)
        return SuffixSession(text, self._stores, laws.shared_noise, len(text) - len(prompt.ids))

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [cast(SuffixSession, session).propose(budget) for session, budget in work]

    def remembering(self, stores: Sequence[Store]) -> SuffixDrafter:
        """Returns the drafter that drafts from these stores, too."""
        return SuffixDrafter(self.vocab_size, stores)


def make(target: Target, draft: Target | None = None) -> Drafter:
    return SuffixDrafter(target.vocab_size)
