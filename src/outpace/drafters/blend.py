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

from outpace.contexts import Counts, DrawNoise, Growth
from outpace.drafters.suffix import OWN_DEPTH, Store, SuffixDrafter, SuffixSession
from outpace.heads.loading import LoadedHead, drafter_for, load_head
from outpace.heads.session import FeatureSession
from outpace.types import Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt, Scores, Step, Target

WIDTH = 8
"""Continuations of a node at most."""

WINDOW = 128
"""Late tokens that the head begins with: reading a long prompt would cost it more than it gains in a short answer."""

COMPANY = 2
"""Requests of a round at most for which the head is asked: each takes a pass of its own."""

GAIN = 0.4
"""Tokens that a look brings where counts know nothing; 1 - p of it where they give a continuation probability p."""

SUREST = 0.9
"""The head is not asked where the counts give a continuation this probability, whatever a look costs."""

LATE = 9
"""Looks whose median time is believed."""


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
        self._seconds: deque[float] = deque(maxlen=LATE)
        self.asks = True

    def _grow(
        self, layers: Sequence[tuple[Counts, float]], budget: Budget, scale: float, noise: DrawNoise | None
    ) -> Growth:
        width = 1 if budget.chains else WIDTH
        if self._features.waits > WINDOW:
            self._native.close()
            self._native = self._head.layer.open()
            self._features.keep(WINDOW)
        first = not self._native.length
        hidden, tokens = self._features.waiting()
        counts: Any = layers  # of the native kind where heads run
        start = clock()
        drafted, parents, probs, looked = self._head.layer.blend(
            self._native, hidden, tokens, counts, self._tokens[-OWN_DEPTH:], budget.depth, budget.node_prices(),
            width, scale, noise, self._temperature, self._sure(budget),
        )  # fmt: skip
        if looked:
            self._features.taken()
            if not first:
                self._seconds.append(clock() - start)
        return Growth(drafted, parents, probs)

    def _sure(self, budget: Budget) -> float:
        """Returns the probability of a continuation from which on the head is not worth asking."""
        if len(self._features.committed) < 2:
            return 0.0
        if not budget.tokens_per_second:  # a fixed length, whose drafts may depend on the text alone
            return SUREST
        if not self.asks:
            return 0.0
        if not self._seconds:
            return SUREST
        price = median_low(self._seconds) * budget.tokens_per_second
        return min(SUREST, max(0.0, 1.0 - price / GAIN))

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
