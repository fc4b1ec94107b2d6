"""Controllers: how much may be drafted next. Zero is a legal answer, and then decoding is plain."""

from __future__ import annotations

from outpace.costs import CostProfile, RoundCosts
from outpace.errors import UsageError
from outpace.estimates import Acceptance, Expectation
from outpace.types import PLAIN, Budget, Step

LONGEST = 15
"""Tokens in a draft at most: the target's kernels are laid out for up to 16 rows."""

LONGEST_FIXED = 128
"""Tokens in a draft of a fixed length at most: each is a row of logits, as long as the vocabulary."""

ALLOWANCE = 0.005
"""Share of plain decoding's time that drafts may lose."""

SAVINGS = 4.0
"""Plain passes that past gains can be worth to later losses."""

REST = 8
"""Rounds at most that pass without a look at costs and prices while nothing can be paid for."""

KEPT = 4
"""Rounds for which a budget is kept and their steps wait to be learnt from, while drafts earn more than they may
lose: what Python needs for that leaves the caches with every pass, and takes a fiftieth of a small model's time."""

FIRST_DRAFTS, FIRST_NODES = 3, 6
"""A request's first drafts are this small at most: nobody knows yet whether its text is like what was counted."""

WORTHWHILE = 1.03
"""Tokens in the time of a plain pass that a draft model must promise: clocks are not sure of less."""

PROBE = 2
FIRST_GAP = 16
LAST_GAP = 256
"""A probe drafts PROBE tokens after so many rounds without a draft; each probe that fails doubles the gap."""


class FixedController:
    """The same budget every round. chains: drafts may not be trees."""

    def __init__(self, draft_length: int, *, chains: bool = False) -> None:
        if not 0 <= draft_length <= LONGEST_FIXED:
            raise UsageError(f"draft_length must be in [0, {LONGEST_FIXED}] (0 = plain decoding), got {draft_length}")
        self._budget = Budget(draft_length, draft_length, chains=chains)

    def budget(self, load: int) -> Budget:
        return self._budget

    def observe(self, step: Step) -> None:
        pass

    def reason(self) -> str:
        return f"draft length fixed at {self._budget.depth}"


class MeasuredController:
    """Sets the budget with the most tokens per second to be expected, from measured costs and acceptance.

    A drafter that limits itself gets a deep budget and the least path probability that pays: lambda dT, with
    lambda the tokens of late for the time of a plain pass, and dT what one more row costs in the same unit; as a
    price for each node in its turn, and as one for all. Any other gets the length d that maximises
    (1 + sum of path probabilities) / (T_score(1 + d) + T_draft(d)). chains: drafts may not be trees.

    Whatever the estimates say, a ledger bounds what drafts may lose: it opens with `patience` plain passes, earns
    what a round saves and ALLOWANCE of plain decoding's time, pays what a round loses, and no draft is longer than
    it could pay for if all of it were wrong. Where nothing was drafted for long, a probe is, ever more rarely.
    """

    def __init__(
        self,
        profile: CostProfile,
        drafter: str,
        *,
        self_limiting: bool,
        chains: bool = False,
        first_length: int = 4,
        patience: float = 0.75,
    ) -> None:
        self._profile = profile
        self._draft = profile.drafting(drafter)
        self._self_limiting = self_limiting
        self._chains = chains
        self._first_length = first_length
        self._ledger = patience  # in plain passes
        self._ceiling = max(SAVINGS, patience)
        self._acceptance = Acceptance(0.7)
        self._load = 1
        self._scores: RoundCosts | None = None
        self._costs: list[float] = []
        self._measured = profile.score.longest - 1  # draft that was measured; none is more than twice as long
        self._asked = 0
        self._resting = 0  # rounds to come in which nothing can be paid for
        self._opening = True
        self._probing = False
        self._idle = 0
        self._gap = FIRST_GAP
        self._kept: Budget = PLAIN
        self._keeps = 0  # rounds to come in which it stays
        self._unread: list[Step] = []
        self._rounds = self._drafted = self._accepted = 0  # of rounds that drafted
        self._late_tokens = self._late_cost = self._late_rounds = self._late_drafted = 0.0

    def budget(self, load: int) -> Budget:
        if self._keeps and load == 1:
            self._keeps -= 1
            return self._kept
        self._read()
        self._keeps = 0
        self._asked = 0
        if self._resting:
            self._resting -= 1
            return PLAIN
        if (self._opening and load == 1) or self._profile.look_is_due(load):
            self._load = load
            return PLAIN  # a plain pass is what all else is compared with
        scores = self._look_up(load)
        most = self._affordable()
        self._probing = self._idle >= self._gap
        if not most and not self._probing:
            self._resting = min(REST, int((self._at_worst(1) - self._ledger) / ALLOWANCE))
            return PLAIN
        if self._probing:
            self._gap = min(2 * self._gap, LAST_GAP)
            self._idle = 0
            free = Budget(min(PROBE, most), min(PROBE, most), chains=self._chains)
            budget = free if self._self_limiting else Budget.chain(min(self._first_length, most))
        else:
            budget = self._deep(scores, most) if self._self_limiting else Budget.chain(min(self._best(), most))
            if load == 1 and self._self_limiting and self._ledger >= self._ceiling / 2 and self._rounds >= KEPT:
                self._kept, self._keeps = budget, KEPT - 1
        self._asked = budget.depth
        return budget

    def _affordable(self) -> int:
        """Returns the longest draft that the ledger could pay for, and that past ones tell the cost of."""
        most = min(LONGEST, max(PROBE, 2 * self._measured))
        if self._rounds < FIRST_DRAFTS and self._self_limiting:
            most = min(most, FIRST_NODES)
        if self._at_worst(1) > self._ledger:
            return 0
        while self._at_worst(most) > self._ledger:
            most -= 1
        return most

    def _at_worst(self, drafted: int) -> float:
        """Returns what a draft loses that is wrong, in plain rounds: with all others' drafts, or all on its own."""
        own = self._scores.alone[drafted] if self._scores else 0.0
        return max(self._costs[drafted], own) - 1

    def _look_up(self, load: int) -> RoundCosts:
        """Returns what a round of so many requests costs, and sets [LONGEST + 1] its costs with the drafter's own."""
        self._load = load
        scores = self._profile.of_rounds(load, LONGEST)
        if scores is not self._scores:
            self._scores, self._costs = scores, scores.costs
            if not self._self_limiting:
                self._costs = [score + self._draft(d) / scores.passes for d, score in enumerate(scores.costs)]
        return scores

    def _deep(self, scores: RoundCosts, most: int) -> Budget:
        typical = max(2, round(self._drafted / self._rounds)) if self._rounds else self._first_length
        row = (self._costs[typical] - 1) / typical
        rate = max(self._late_tokens / self._late_cost if self._late_cost else 0.0, 1.0)
        prices = tuple([min(1.0, rate * slope) for slope in scores.slopes[:most]])
        second = self._load * rate / scores.plain_seconds
        return Budget(most, most, max(0.0, min(1.0, rate * row)), prices, self._chains, second)

    def _best(self) -> int:
        """Returns the draft length with the highest rate; 0 where none is worth the trouble."""
        if self._rounds < 2:
            return self._first_length
        rates = self._rates()
        best = max(rates)
        return rates.index(best) if best >= WORTHWHILE else 0

    def _rates(self) -> list[float]:
        """Returns [LONGEST + 1] the tokens to be expected in the time of a plain pass, by draft length."""
        rates, expected = [1.0], 1.0
        for path, cost in zip(self._acceptance.reached(LONGEST), self._costs[1:], strict=True):
            expected += path
            rates.append(expected / cost)
        return rates

    def expectation(self) -> Expectation | None:
        """Returns what the next rounds should bring; where the drafter limits itself, what the late ones brought."""
        self._read()
        plain = self._profile.plain_seconds
        if not self._rounds or not plain:
            return None
        if self._self_limiting:
            drafted, tokens, cost = self._late_drafted, self._late_tokens, self._late_cost
            return Expectation(
                plain, drafted / self._late_rounds, tokens / self._late_rounds, cost / self._late_rounds
            )
        rates = tuple(self._rates())
        length = rates.index(max(rates))
        return Expectation(plain, length, rates[length] * self._costs[length], self._costs[length], rates)

    def observe(self, step: Step) -> None:
        self._unread.append(step)
        if not self._keeps:
            self._read()

    def _read(self) -> None:
        """Learns from the steps that waited."""
        unread, self._unread = self._unread, []
        for step in unread:
            self._learn_from(step)

    def _learn_from(self, step: Step) -> None:
        if self._resting and not step.draft.tokens:
            self._idle += 1
            self._enter(len(step.tokens), 1.0, 0)
            return
        drafted, accepted, seconds = step.drafted, step.accepted, step.seconds
        rows = seconds.rows or 1 + len(step.draft)
        if self._load == 1:
            self._profile.observe(rows, seconds.score + seconds.verify, self._opening)
        else:
            self._profile.observe_shared(self._load, rows, seconds.score, seconds.verify)
        self._opening = False
        # A model's first draft also pays for its prefill, which says nothing of later ones.
        if self._asked and self._rounds and self._scores and not self._self_limiting:
            self._draft.observe(drafted, seconds.draft / self._scores.pass_seconds)
        cost = self._cost(len(step.draft), rows, seconds.draft)
        if drafted:
            self._measured = max(self._measured, drafted)
            self._count(drafted, accepted, bool(step.finish), paid=len(step.tokens) > cost)
        else:
            self._idle += 1
        self._enter(len(step.tokens), cost, drafted)

    def _enter(self, tokens: int, cost: float, drafted: int) -> None:
        """Enters a round in the books."""
        self._late_tokens = 0.95 * self._late_tokens + tokens
        self._late_cost = 0.95 * self._late_cost + cost
        self._late_rounds = 0.95 * self._late_rounds + 1
        self._late_drafted = 0.95 * self._late_drafted + drafted
        self._ledger = min(self._ceiling, self._ledger + (1 + ALLOWANCE) * tokens - cost)

    def _cost(self, drafted: int, rows: int, drafting: float) -> float:
        """Returns what a round cost in plain ones: its rows, those of probes too, and the seconds of its drafter.

        rows: of the whole pass.
        """
        if not drafted and not self._asked:
            return 1.0
        scores = self._look_up(self._load)
        cost = self._costs[min(drafted, LONGEST)]
        if self._load > 1:
            together = max(drafted, rows - self._load)
            cost += self._profile.share(self._load, drafted, together) - scores.costs[min(drafted, LONGEST)]
        if self._self_limiting and self._rounds:
            cost += min(drafting / scores.plain_seconds, SAVINGS)  # a prefill is no verdict on drafts
        return cost

    def _count(self, drafted: int, accepted: int, cut: bool, *, paid: bool) -> None:
        self._rounds += 1
        self._drafted += drafted
        self._accepted += accepted
        self._idle = 0
        if paid or not self._probing:
            self._gap = FIRST_GAP
        if not cut and not self._self_limiting:
            self._acceptance.observe(drafted, accepted)

    def reason(self) -> str:
        self._read()
        if not self._rounds:
            return "nothing drafted"
        mean = self._drafted / self._rounds
        rows = 1 + round(mean)
        return (
            f"{mean:.1f} tokens a draft, {100 * self._accepted / self._drafted:.0f} % accepted, "
            f"{rows} rows cost {self._profile.score(rows):.2f} of one"
        )
