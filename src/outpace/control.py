"""Controllers: how much may be drafted next. Zero is a legal answer, and then decoding is plain."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from outpace.errors import UsageError
from outpace.estimates import Acceptance, Expectation
from outpace.types import PLAIN, Budget, Step

ROW_COST = 0.06
"""A further row's cost in passes of one row, until it is measured."""

LEAST_ROW_COST = 0.02
"""What a further row costs at least, whatever noisy clocks say."""

SHARED_ROW_COST = 0.12
"""The same of a pass that several requests share: beyond a few rows products take their time by the row."""

LONGEST = 15
"""Tokens in a draft at most: the target's kernels are laid out for up to 16 rows."""

MOST_ROWS = 1 << 12
"""In one pass that a profile may speak of."""

ALLOWANCE = 0.01
"""Share of plain decoding's time that drafts may lose."""

SAVINGS = 4.0
"""Plain passes that past gains can be worth to later losses."""

LATE = 25
"""Measurements of one count that are remembered; their median is robust against a machine that does other work."""

FIRST_LOOKS = 3
"""Plain passes that are measured before anything is drafted, once for each model."""

SURE = 4
"""Measurements of one count after which it is no longer looked up anew every round."""

REFRESH = 16
"""Rounds between look-ups of the cost curves."""

PROBE = 2
FIRST_GAP = 16
LAST_GAP = 256
"""A probe drafts PROBE tokens after so many rounds without a draft; each probe that fails doubles the gap."""


class FixedController:
    """The same budget every round. chains: drafts may not be trees."""

    def __init__(self, draft_length: int, *, chains: bool = False) -> None:
        if draft_length < 0:
            raise UsageError(f"draft_length must be at least 0 (0 = plain decoding), got {draft_length}")
        self._budget = Budget(draft_length, draft_length, chains=chains)

    def budget(self, load: int) -> Budget:
        return self._budget

    def observe(self, step: Step) -> None:
        pass

    def reason(self) -> str:
        return f"draft length fixed at {self._budget.depth}"


class CostCurve:
    """Costs by a count of rows or tokens: late medians where measured, straight lines between and beyond.

    start: (count, cost) that is known. step: the least that one more costs beyond what was measured.
    """

    def __init__(self, start: tuple[int, float], step: float) -> None:
        self._step = step
        self._late: dict[int, deque[float]] = {}
        self._costs: dict[int, float] = dict([start])

    def observe(self, count: int, cost: float) -> None:
        late = self._late.get(count)
        if late is None:
            late = self._late[count] = deque(maxlen=LATE)
        late.append(cost)
        self._costs[count] = sorted(late)[len(late) // 2]

    def record(self) -> dict[str, list[float]]:
        """Returns the late measurements by count, as JSON has them."""
        return {str(count): list(late) for count, late in self._late.items()}

    def learn(self, record: Mapping[str, Sequence[float]]) -> None:
        """Takes over recorded measurements. Raises ValueError for what cannot be costs."""
        for count, costs in record.items():
            if not 0 <= int(count) <= MOST_ROWS or not all(0 <= float(cost) < math.inf for cost in costs):
                raise ValueError(f"no costs of a pass: {count}")
            for cost in costs[-LATE:]:
                self.observe(int(count), float(cost))

    def seen(self, count: int) -> int:
        """Returns how often this count was measured, at most LATE."""
        return len(self._late.get(count, ()))

    @property
    def longest(self) -> int:
        """The largest count that was measured; where none was, the one that is known."""
        return max(self._late, default=min(self._costs))

    def __call__(self, count: int) -> float:
        known = self._costs.get(count)
        if known is not None:
            return known
        below = max(n for n in self._costs if n < count)
        above = min((n for n in self._costs if n > count), default=None)
        low = self._costs[below]
        if above is not None:
            return low + (self._costs[above] - low) * (count - below) / (above - below)
        first = min(self._costs)
        slope = (low - self._costs[first]) / max(below - first, 1)
        return low + (count - below) * max(slope, self._step)


def convex_slopes(costs: Sequence[float]) -> list[float]:
    """Returns [len(costs) - 1] the rises of the largest convex curve under the costs: noise makes no bumps in it."""
    hull: list[int] = []
    for i, cost in enumerate(costs):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (costs[b] - costs[a]) * (i - b) < (cost - costs[b]) * (b - a):
                break
            hull.pop()
        hull.append(i)
    slopes: list[float] = []
    for a, b in pairwise(hull):
        slopes += [(costs[b] - costs[a]) / (b - a)] * (b - a)
    return slopes


class CostProfile:
    """What passes cost on this machine with this model, in plain passes; all that outlives a request.

    A pass is compared with what a plain one takes at that time, so neither a growing context nor a machine that does
    other work for a while distorts the comparison. score: of the target, by rows of one request. draft: of each
    drafter, by tokens. Requests that share a pass read their caches apart, so that sixteen rows of one request cost
    half of what sixteen requests do; shared passes have a curve for each number of requests.
    """

    def __init__(self) -> None:
        self.plain_seconds = 0.0
        self.plain_seen = 0
        self.score = CostCurve((1, 1.0), ROW_COST)
        self.draft: dict[str, CostCurve] = {}
        self._plainly = CostCurve((1, 1.0), SHARED_ROW_COST)  # by requests, of one row each
        self._shared: dict[int, CostCurve] = {}
        self._last_shared = 0.0

    def record(self) -> dict[str, Any]:
        """Returns what is known of one request alone, as JSON has it, but for drafters' costs: those are a pair's."""
        return {"plain_seconds": self.plain_seconds, "score": self.score.record()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> CostProfile:
        """Returns the profile of a record. Raises ValueError, KeyError or TypeError where it is none."""
        profile = cls()
        profile.plain_seconds = float(record["plain_seconds"])
        if not 0 < profile.plain_seconds < math.inf:
            raise ValueError(f"a pass cannot take {profile.plain_seconds} seconds")
        profile.plain_seen = FIRST_LOOKS
        profile.score.learn(record["score"])
        return profile

    def expect_drafts(self, drafter: str, token_seconds: float) -> None:
        """Notes what a token of a drafter should cost, until it is measured."""
        self.draft[drafter] = CostCurve((0, 0.0), token_seconds / self.plain_seconds)

    def drafting(self, drafter: str) -> CostCurve:
        """Returns the curve of one drafter."""
        return self.draft.setdefault(drafter, CostCurve((0, 0.0), 0.0))

    def cost(self, load: int, drafted: int) -> float:
        """Returns what a pass costs in which `load` requests have `drafted` rows each beyond their first."""
        if load == 1:
            return self.score(1 + drafted)
        return self._shared_curve(load)(round(load * drafted / _bin_rows(load)))

    def _shared_curve(self, load: int) -> CostCurve:
        """Returns the curve of passes that so many requests share, by bins of their drafted rows together."""
        if load not in self._shared:
            self._shared[load] = CostCurve((0, self._plainly(load)), SHARED_ROW_COST * _bin_rows(load))
        return self._shared[load]

    def observe_shared(self, load: int, rows: int, score: float, verify: float) -> None:
        """Learns from a pass of `load` > 1 requests; each of them reports it, and it counts once.

        score: seconds of the pass. verify: what one of the requests took afterwards.
        """
        if score == self._last_shared:
            return
        self._last_shared = score
        curve, place = self._shared_curve(load), round(max(0, rows - load) / _bin_rows(load))
        seconds = score + load * verify
        self.plain_seconds = self.plain_seconds or seconds / curve(place)
        cost = seconds / self.plain_seconds
        if curve.seen(place) > SURE:
            self._follow(seconds / curve(place), 0.1)
        elif place:
            # Who believed one slow pass would draft no more, and not learn that it was an exception.
            cost = min(cost, curve(0) + 1.5 * SHARED_ROW_COST * _bin_rows(load) * place)
        curve.observe(place, cost)
        if not place:
            self._plainly.observe(load, cost)

    def observe(self, rows: int, seconds: float) -> None:
        """Learns from a target's pass for one request, and from it how fast the machine is now."""
        if rows == 1:
            self.plain_seen += 1
            if self.plain_seen <= FIRST_LOOKS:  # the first passes are often slow ones
                self.plain_seconds = min(seconds, self.plain_seconds or seconds)
            else:
                self._follow(seconds, 0.3)
            return
        if not self.plain_seconds:
            self.plain_seconds = seconds / self.score(rows)
        if self.score.seen(rows) > SURE:
            self._follow(seconds / self.score(rows), 0.1)
        self.score.observe(rows, seconds / self.plain_seconds)

    def _follow(self, seconds: float, weight: float) -> None:
        now = self.plain_seconds
        self.plain_seconds += weight * (min(max(seconds, 0.5 * now), 2.0 * now) - now)


def _bin_rows(load: int) -> int:
    """Returns how many rows' difference hardly tells two passes of so many requests apart."""
    return max(1, load // 4)


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
        self._score = profile.score
        self._draft = profile.drafting(drafter)
        self._self_limiting = self_limiting
        self._chains = chains
        self._first_length = first_length
        self._ledger = patience  # in plain passes
        self._ceiling = max(SAVINGS, patience)
        self._acceptance = Acceptance(0.7)
        self._load = 1
        self._costs: list[float] = []
        self._slopes: list[float] = []
        self._measured = self._score.longest - 1  # draft that was measured; none is more than twice as long
        self._until_refresh = 0
        self._asked = 0
        self._probing = False
        self._idle = 0
        self._gap = FIRST_GAP
        self._rounds = self._drafted = self._accepted = 0  # of rounds that drafted
        self._late_tokens = self._late_cost = self._late_rounds = self._late_drafted = 0.0

    def budget(self, load: int) -> Budget:
        self._asked = 0
        if load == 1 and self._profile.plain_seen < FIRST_LOOKS:
            self._load = load
            return PLAIN  # a plain pass is what all else is compared with
        if self._until_refresh <= 0 or load != self._load:
            self._refresh(load)
        self._until_refresh -= 1
        self._probing = self._idle >= self._gap
        if self._probing:
            self._gap = min(2 * self._gap, LAST_GAP)
            self._idle = 0
            free = replace(self._deep(), depth=PROBE, nodes=PROBE, min_path_probability=0.0, prices=())
            budget = free if self._self_limiting else Budget.chain(self._first_length)
        else:
            budget = self._deep() if self._self_limiting else self._best()
        depth = min(budget.depth, max(PROBE, 2 * self._measured))
        while depth and self._costs[depth] - 1 > self._ledger:
            depth -= 1
        self._asked = depth
        return budget if depth == budget.depth else replace(budget, depth=depth, nodes=depth)

    def _refresh(self, load: int) -> None:
        """Looks up [LONGEST + 1] what a round costs by draft length, in plain rounds of the same load."""
        self._load = load
        plain = self._profile.cost(load, 0)
        self._costs = [1.0]
        for d in range(1, LONGEST + 1):
            score = max(self._profile.cost(load, d) / plain, 1 + LEAST_ROW_COST * d)
            self._costs.append(score if self._self_limiting else score + self._draft(d) / plain)
        self._slopes = convex_slopes(self._costs)
        self._until_refresh = REFRESH

    def _deep(self) -> Budget:
        typical = max(2, round(self._drafted / self._rounds)) if self._rounds else self._first_length
        row = (self._costs[typical] - 1) / typical
        rate = max(self._late_tokens / self._late_cost if self._late_cost else 0.0, 1.0)
        prices = tuple(min(1.0, rate * slope) for slope in self._slopes)
        second = rate / self._profile.plain_seconds
        return Budget(LONGEST, LONGEST, max(0.0, min(1.0, rate * row)), prices, self._chains, second)

    def _best(self) -> Budget:
        if self._rounds < 2:
            return Budget.chain(self._first_length)
        rates = self._rates()
        return Budget.chain(rates.index(max(rates)))

    def _rates(self) -> list[float]:
        """Returns [LONGEST + 1] the tokens to be expected in the time of a plain pass, by draft length."""
        rates, expected = [1.0], 1.0
        for path, cost in zip(self._acceptance.reached(LONGEST), self._costs[1:], strict=True):
            expected += path
            rates.append(expected / cost)
        return rates

    def expectation(self) -> Expectation | None:
        """Returns what the next rounds should bring; where the drafter limits itself, what the late ones brought."""
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
        drafted, accepted, seconds = step.drafted, step.accepted, step.seconds
        rows = seconds.rows or 1 + len(step.draft)
        if self._load == 1:
            self._profile.observe(rows, seconds.score + seconds.verify)
        else:
            self._profile.observe_shared(self._load, rows, seconds.score, seconds.verify)
        # A model's first draft also pays for its prefill, which says nothing of later ones.
        if self._asked and self._rounds and not self._self_limiting:
            self._draft.observe(drafted, seconds.draft / self._profile.plain_seconds)
        if drafted and self._score.seen(rows) <= SURE:
            self._until_refresh = 0
        if drafted:
            self._measured = max(self._measured, drafted)
            self._learn(drafted, accepted, bool(step.finish))
        else:
            self._idle += 1
        if self._until_refresh <= 0:
            self._refresh(self._load)
        cost = self._costs[min(len(step.draft), LONGEST)]  # probes cost their rows, too
        if self._self_limiting and self._rounds:
            cost += min(seconds.draft / self._profile.plain_seconds, SAVINGS)  # a prefill is no verdict on drafts
        tokens = len(step.tokens)
        self._late_tokens = 0.95 * self._late_tokens + tokens
        self._late_cost = 0.95 * self._late_cost + cost
        self._late_rounds = 0.95 * self._late_rounds + 1
        self._late_drafted = 0.95 * self._late_drafted + drafted
        self._ledger = min(self._ceiling, self._ledger + (1 + ALLOWANCE) * tokens - cost)

    def _learn(self, drafted: int, accepted: int, cut: bool) -> None:
        self._rounds += 1
        self._drafted += drafted
        self._accepted += accepted
        self._idle = 0
        if accepted or not self._probing:
            self._gap = FIRST_GAP
        if not cut and not self._self_limiting:
            self._acceptance.observe(drafted, accepted)

    def reason(self) -> str:
        if not self._rounds:
            return "nothing drafted"
        mean = self._drafted / self._rounds
        rows = 1 + round(mean)
        return (
            f"{mean:.1f} tokens a draft, {100 * self._accepted / self._drafted:.0f} % accepted, "
            f"{rows} rows cost {self._score(rows):.2f} of one"
        )
