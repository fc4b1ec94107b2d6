"""Suffixes and a head blended: one tree that grows from counts, and at its root from an `eagle` head's law, too.

Counts know what was said before, the head what the target has in mind. A look of the head costs a share of a pass of
the target: it is asked where the counts are so unsure that it will probably pay. What the target commits meanwhile
waits, and is taken in with the next look. A second level of looks was tried: it cost what it gained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low
from time import perf_counter as clock
from typing import Any, cast

from outpace.contexts import SLOTS, DrawNoise, Growth
from outpace.drafters.suffix import OWN_DEPTH, Layers, Store, SuffixDrafter, SuffixSession
from outpace.heads.loading import LoadedHead, drafter_for, load_head
from outpace.heads.session import FeatureSession
from outpace.types import Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt, Scores, Step, Target

WIDTH = 8
"""Continuations of a node at most."""

WINDOW = 128
"""Late tokens that the head begins with: reading a long prompt would cost it more than it gains in a short answer."""

COMPANY = 2
"""Requests of a round at most for which the head is asked: each takes a pass of its own."""

FIRST_GAIN, FIRST_WEIGHT, FADE = 0.4, 4.0, 0.98
"""Tokens that a look is first taken to bring for each one that counts miss, the weight of that in misses, and how
much late looks outweigh early ones."""

LEAST_GAIN = 1e-6
"""Tokens that looks are taken to have brought at least."""

NEVER = 2.0
"""A probability that no miss has."""

LEAST_MISS = 0.1
"""The head is not asked where the counts miss the next token less often than this, whatever a look costs."""

LATE, EXPECTED = 9, 200e-6
"""Looks whose median time is believed, and what one is taken to take, in seconds, before any was timed."""

TOLL = 1.4
"""What a look costs by the time that it takes: the target's next pass finds less of what it needs in the caches."""


class Looks:
    """What looks of the head are worth in one request, by their trees' own probabilities, and what they cost."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=LATE)
        self._gained, self._missed = FIRST_GAIN * FIRST_WEIGHT, FIRST_WEIGHT

    def least_miss(self, budget: Budget) -> float:
        """Returns the probability, perhaps above 1, with which counts must miss the next token for a look to pay."""
        # A fixed length may depend on the text alone: its budgets have no tokens a second, and looks no price.
        seconds = median_low(self._seconds) if self._seconds else EXPECTED
        price = TOLL * seconds * budget.tokens_per_second
        return max(LEAST_MISS, price * self._missed / max(self._gained, LEAST_GAIN))

    def observe(self, miss: float, gained: float, seconds: float) -> None:
        self._gained = FADE * self._gained + gained
        self._missed = FADE * self._missed + miss
        if seconds:
            self._seconds.append(seconds)


class BlendSession(SuffixSession):
    """One request: its counts, and the head's cache of its late tokens. asks: whether the head may be asked."""

    def __init__(
        self, head: LoadedHead, prompt: Prompt, context: Context, laws: LawMaker, stores: Sequence[Store]
    ) -> None:
        text = prompt.copyable(OWN_DEPTH)
        super().__init__(text, stores, laws.shared_noise, len(text) - len(prompt.ids))
        self._features = FeatureSession(prompt, context, laws)
        self._temperature = laws.temperature or 1.0
        self._head = head
        self._native = head.layer.open()
        self._looks = Looks()
        self.asks = True

    def _grow(self, layers: Layers, budget: Budget, odds: float, noise: DrawNoise | None) -> Growth:
        asks = self.asks or not budget.tokens_per_second
        least = self._looks.least_miss(budget) if asks else NEVER
        if least > 1.0 or len(self._features.committed) < 2:
            return super()._grow(layers, budget, odds, noise)
        # What the head has to read at first is read with the first draft, by which nobody judges the later ones.
        first = self._begin()
        counts: Any = layers  # of the native kind where heads run
        start = clock()
        tree, miss, gained = self._head.layer.blend(
            self._native, *self._features.pieces(), counts, self._tokens[-OWN_DEPTH:], budget.depth,
            budget.node_prices(), (1, 1) if budget.chains else (SLOTS, WIDTH), odds, noise, self._temperature,
            0.0 if first else least,
        )  # fmt: skip
        if gained is not None:
            self._features.taken()
            self._looks.observe(miss, gained, 0.0 if first else clock() - start)
        return Growth(*tree)

    def _begin(self) -> bool:
        """Returns whether the next look reads many tokens: the first one, or after long without one."""
        if self._features.waits > WINDOW:
            self._native.close()
            self._native = self._head.layer.open()
            self._features.keep(WINDOW)
        return not self._native.length

    def observe(self, step: Step, scores: Scores) -> None:
        super().observe(step, scores)
        self._features.observe(step, scores)
        if self._features.waits > 2 * WINDOW:
            self._features.keep(WINDOW + 1)  # more than the window: the head begins anew

    def close(self) -> None:
        super().close()
        self._features.close()
        self._native.close()


class BlendDrafter(SuffixDrafter):
    """Drafts likely continuations by counts and by a head."""

    name = "blend"

    def __init__(self, head: LoadedHead, vocab_size: int, stores: Sequence[Store] = ()) -> None:
        super().__init__(vocab_size, stores)
        self._head = head
        self.taps = head.config.taps
        self.weight_bytes = head.layer.pass_bytes

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return BlendSession(self._head, prompt, context, laws, self._stores)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        for session, _ in work:
            cast(BlendSession, session).asks = len(work) <= COMPANY
        return super().propose_many(work)

    def remembering(self, stores: Sequence[Store]) -> BlendDrafter:
        return BlendDrafter(self._head, self.vocab_size, stores)


def make(target: Target, draft: Target | None = None) -> Drafter:
    return drafter_for(
        target, "blend", ("eagle",), lambda head, native: BlendDrafter(load_head(head, native), native.vocab_size)
    )
