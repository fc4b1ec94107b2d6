"""Per round the drafter with the best expected gain, all of them scored on what the target really says.

Suffixes cost nothing, so they propose every round, and their own probabilities say what they are worth. A member that
runs a model drafts only where its record and its measured seconds promise more (or a fixed length is asked for):

    gain(d) = sum of the chances that positions 1..d are accepted - prices of d rows - seconds(d) * tokens per second

Expert advice with full information where it is free (2510.20064), with an estimate where it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter as clock
from typing import cast

from outpace.drafters.model import make as make_model
from outpace.drafters.suffix import Store, SuffixDrafter, SuffixSession
from outpace.estimates import Acceptance
from outpace.types import (
    EMPTY,
    PLAIN,
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

LONGEST = 8
"""Tokens that a model member drafts at most."""

FIRST_LENGTH, FIRST_RATE = 3, 0.7
"""Of a model member's first draft, and its acceptance until it has a record."""

FIRST_GAP, LAST_GAP = 16, 256
"""A member whose record is too poor is tried again after so many rounds, each failure doubling the gap."""

PREFILL_ROWS = 5.0
"""Tokens that a model reads of a prompt in the time of a pass of one row, measured on the real pair."""

FIRST_COST, PATIENCE = 2.0, 1.5
"""A member begins when reading the prompt costs it at most so many plain passes, and this for each token that the
suffixes have gained less than it promises: a text that copies never needs it, and a short one ends before it pays."""

PACE = 1.5
"""Tokens in the time of a plain pass where drafts are made, by which a member's promise is priced."""

LATE = 9
"""Measurements of a member's speed whose median is believed."""


@dataclass(slots=True)
class Record:
    """What is known of one model member in one request."""

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(FIRST_RATE))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATE))  # of a token
    drafts: int = 0
    idle: int = 0
    gap: int = FIRST_GAP

    def best(self, budget: Budget, prices: Sequence[float]) -> tuple[float, int]:
        """Returns (gain, length) of the most promising length; (0, 0) where none promises anything.

        A chance to try a poor member again has no gain and some length.
        """
        most = min(LONGEST, budget.depth, len(prices))
        if not self.drafts:
            return float(FIRST_LENGTH), min(FIRST_LENGTH, most)
        token = self._token_seconds() * budget.tokens_per_second
        gain, best, length = 0.0, 0.0, 0
        for d, reached in enumerate(self.acceptance.reached(most), 1):
            gain += reached - prices[d - 1] - token
            if gain > best:
                best, length = gain, d
        if not length and self.idle >= self.gap:
            return best, min(2, most)
        return best, length

    def asking(self, budget: Budget, prices: Sequence[float], length: int) -> Budget:
        """Returns the member's budget: going on must be likely enough to pay for a further token."""
        most = min(LONGEST, budget.depth, len(prices))
        if not self.seconds or length <= 2:
            return Budget(length, len(prices), 0.0, tuple(prices), budget.chains)
        cost = self._token_seconds() * budget.tokens_per_second + prices[min(length, most) - 1]
        [first] = self.acceptance.reached(1)
        least = min(1.0, cost / max(first, 1e-3))
        return Budget(most, len(prices), least, tuple(prices), budget.chains)

    def _token_seconds(self) -> float:
        late = sorted(self.seconds)
        return late[len(late) // 2] if late else 0.0

    def drafted(self, count: int, seconds: float) -> None:
        """Learns what a draft cost; the first one also paid for the member's prefill."""
        if self.drafts:
            self.seconds.append(seconds / count)
        self.drafts += 1
        self.idle = 0

    def observe(self, drafted: int, accepted: int) -> None:
        self.acceptance.observe(drafted, accepted)
        self.gap = FIRST_GAP if accepted else min(2 * self.gap, LAST_GAP)


def promised(share: float, prices: Sequence[float]) -> float:
    """Returns the tokens that a member should gain in a round, before it has a record. share: of a plain pass."""
    row = PACE * share
    return sum(max(0.0, FIRST_RATE**d - price - row) for d, price in enumerate(prices[:LONGEST], 1))


class MixtureSession:
    """One request: the suffixes' session, and each model member's with its record. chosen: whose draft is out."""

    def __init__(
        self, free: SuffixSession, paid: Sequence[DraftSession], shares: Sequence[float], prompt: Prompt
    ) -> None:
        self.free = free
        self._copies = bool(prompt.expected)
        self.paid = paid
        self.records = [Record() for _ in paid]
        self._shares = shares
        self._first_costs = [share * len(prompt.ids) / PREFILL_ROWS for share in shares]  # in plain passes
        self._forgone = [0.0] * len(paid)  # tokens that members who wait would have gained over suffixes
        self.chosen: int | None = None

    def choose(self, budget: Budget) -> tuple[Draft, Budget]:
        """Returns the suffixes' draft, or an empty one and the budget of the `chosen` member's."""
        self.chosen = None
        draft = self.free.propose(budget)
        if not budget.depth or not self.records:
            return draft, PLAIN
        if not budget.tokens_per_second:  # a fixed length, whose drafts may depend on the text alone
            if self._copies and draft.tokens:
                return draft, PLAIN
            self.chosen = 0
            return EMPTY, Budget.chain(min(budget.depth, budget.nodes))
        prices = budget.node_prices()
        free = self.free.gain(prices) if draft.tokens else 0.0
        best, length = free, 0
        for i, record in enumerate(self.records):
            record.idle += 1
            if not record.drafts:
                self._forgone[i] += max(0.0, promised(self._shares[i], prices) - free)
                if self._first_costs[i] > FIRST_COST + PATIENCE * self._forgone[i]:
                    continue
            gain, wanted = record.best(budget, prices)
            if wanted and (gain > best or (gain == 0.0 and record.idle > record.gap)):
                best, length, self.chosen = gain, wanted, i
        if self.chosen is None:
            return draft, PLAIN
        return EMPTY, self.records[self.chosen].asking(budget, prices, length)

    def observe(self, step: Step, scores: Scores) -> None:
        if self.chosen is not None and step.drafted and not step.finish:
            self.records[self.chosen].observe(*along_the_chain(step))
        self.chosen = None
        for member in (self.free, *self.paid):
            member.observe(step, scores)

    def close(self) -> None:
        for member in (self.free, *self.paid):
            member.close()


def along_the_chain(step: Step) -> tuple[int, int]:
    """Returns how many nodes the chain had that a draft begins with, and how many of them were accepted."""
    parents = step.draft.parents[: step.drafted]
    drafted = next((node for node, parent in enumerate(parents) if parent != node - 1), len(parents))
    return drafted, sum(node == place for place, node in enumerate(step.verdict.path[:drafted]))


class MixtureDrafter:
    """Suffixes, and drafters that run a model.

    paid: none of them may need other layers of the target than the rest. target_bytes: what the target's pass reads.
    """

    name = "mixture"
    drafts_trees = True
    self_limiting = True
    copies_expected = True

    def __init__(self, free: SuffixDrafter, paid: Sequence[Drafter], target_bytes: int) -> None:
        self._free = free
        self._paid = tuple(paid)
        self._target_bytes = target_bytes
        self._shares = [drafter.weight_bytes / max(target_bytes, 1) for drafter in paid]
        self.vocab_size = free.vocab_size
        self.weight_bytes = max((drafter.weight_bytes for drafter in paid), default=0)
        self.taps: tuple[int, ...] = next((drafter.taps for drafter in paid if drafter.taps), ())

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        free = cast(SuffixSession, self._free.open(prompt, context, laws))
        paid = [drafter.open(prompt, context, laws) for drafter in self._paid]
        return MixtureSession(free, paid, self._shares, prompt)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        sessions = [cast(MixtureSession, session) for session, _ in work]
        choices = [session.choose(budget) for session, (_, budget) in zip(sessions, work, strict=True)]
        drafts = [draft for draft, _ in choices]
        for i, drafter in enumerate(self._paid):
            members = [n for n, session in enumerate(sessions) if session.chosen == i]
            if not members:
                continue
            start = clock()
            asked = [(sessions[n].paid[i], choices[n][1]) for n in members]
            for n, draft in zip(members, drafter.propose_many(asked), strict=True):
                drafts[n] = draft
            seconds = (clock() - start) / len(members)
            for n in members:
                if drafts[n].tokens:
                    sessions[n].records[i].drafted(drafts[n].depth, seconds)
        return drafts

    def remembering(self, stores: Sequence[Store]) -> MixtureDrafter:
        """Returns the mixture whose suffixes come from these stores, too."""
        return MixtureDrafter(self._free.remembering(stores), self._paid, self._target_bytes)


def make(target: Target, draft: Target | None = None) -> Drafter:
    paid = [] if draft is None else [make_model(target, draft)]
    return MixtureDrafter(SuffixDrafter(target.vocab_size), paid, target.weight_bytes)
