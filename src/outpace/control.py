"""Controllers: how much may be drafted next. Zero is a legal answer, and then decoding is plain."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from outpace.errors import UsageError
from outpace.types import PLAIN, Budget, Step

ROW_COST = 0.06
"""A further row's cost in passes of one row, until it is measured."""

LEAST_ROW_COST = 0.02
"""What a further row costs at least, whatever noisy clocks say."""

LONGEST = 15
"""Tokens in a draft at most: the target's kernels are laid out for up to 16 rows."""

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
    """The same chain budget every round."""

    def __init__(self, draft_length: int) -> None:
        if draft_length < 0:
            raise UsageError(f"draft_length must be at least 0 (0 = plain decoding), got {draft_length}")
        self._budget = Budget.chain(draft_length)

    def budget(self, load: int) -> Budget:
        return self._budget

    def observe(self, step: Step) -> None:
        pass

    def reason(self) -> str:
        return f"draft length fixed at {self._budget.depth}"


class CostCurve:
    """Seconds by a count of rows or tokens: late medians where measured, straight lines between and beyond.

    step_cost: the least that one more costs beyond what was measured, as a share of the smallest count's seconds.
    """

    def __init__(self, step_cost: float) -> None:
        self._step_cost = step_cost
        self._late: dict[int, deque[float]] = {}
        self._seconds: dict[int, float] = {}

    def observe(self, count: int, seconds: float) -> None:
        late = self._late.get(count)
        if late is None:
            late = self._late[count] = deque(maxlen=LATE)
        late.append(seconds)
        self._seconds[count] = sorted(late)[len(late) // 2]

    def seen(self, count: int) -> int:
        """Returns how often this count was measured, at most LATE."""
        return len(self._late.get(count, ()))

    def __call__(self, count: int) -> float:
        """Returns the seconds expected; 0.0 while nothing is measured."""
        known = self._seconds.get(count)
        if known is not None:
            return known
        below = max((n for n in self._seconds if n < count), default=None)
        above = min((n for n in self._seconds if n > count), default=None)
        if below is not None and above is not None:
            low, high = self._seconds[below], self._seconds[above]
            return low + (high - low) * (count - below) / (above - below)
        if below is not None:
            first = min(self._seconds)
            slope = (self._seconds[below] - self._seconds[first]) / max(below - first, 1)
            return self._seconds[below] + (count - below) * max(slope, self._step_cost * self._seconds[first])
        if above is not None:
            return self._seconds[above] / (1 + self._step_cost * (above - count))
        return 0.0


def _drafting_curve() -> CostCurve:
    curve = CostCurve(0.0)
    curve.observe(0, 0.0)
    return curve


@dataclass(slots=True)
class CostProfile:
    """What passes cost on this machine with this model; all that outlives a request.

    score: of the target, by rows. draft: of each drafter, by tokens drafted.
    """

    score: CostCurve = field(default_factory=lambda: CostCurve(ROW_COST))
    draft: dict[str, CostCurve] = field(default_factory=dict)

    def drafting(self, drafter: str) -> CostCurve:
        """Returns the curve of one drafter."""
        return self.draft.setdefault(drafter, _drafting_curve())


class Acceptance:
    """How likely each position of a draft is accepted, given the ones before it.

    A draft says nothing about the positions after its first rejection. Old rounds fade; a position that was
    hardly reached is taken to be like the one before it.
    """

    FADE = 0.98
    PRIOR_WEIGHT = 4.0

    def __init__(self, first: float) -> None:
        self._first = first
        self._right: list[float] = []
        self._tried: list[float] = []

    def observe(self, drafted: int, accepted: int) -> None:
        while len(self._tried) < drafted:
            self._right.append(0.0)
            self._tried.append(0.0)
        # All fade, so that a position that looked poor once is not shunned for ever.
        self._right = [right * self.FADE for right in self._right]
        self._tried = [tried * self.FADE for tried in self._tried]
        for i in range(min(drafted, accepted + 1)):
            self._right[i] += i < accepted
            self._tried[i] += 1

    def reached(self, length: int) -> list[float]:
        """Returns [length] the probability that each position is accepted, with all before it."""
        rate, path, paths = self._first, 1.0, []
        for i in range(length):
            if i < len(self._tried):
                rate = (self.PRIOR_WEIGHT * rate + self._right[i]) / (self.PRIOR_WEIGHT + self._tried[i])
            path *= rate
            paths.append(path)
        return paths


class MeasuredController:
    """Sets the budget with the most tokens per second to be expected, from measured costs and acceptance.

    A drafter that limits itself gets a deep budget and the least path probability that pays: lambda dT, with
    lambda the tokens per second of late and dT the seconds of one more row. Any other gets the length d that
    maximises (1 + sum of path probabilities) / (T_score(1 + d) + T_draft(d)).

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
        first_length: int = 4,
        patience: float = 1.0,
    ) -> None:
        self._score = profile.score
        self._draft = profile.drafting(drafter)
        self._self_limiting = self_limiting
        self._first_length = first_length
        self._ledger = patience  # in plain passes
        self._ceiling = max(SAVINGS, patience)
        self._acceptance = Acceptance(0.7)
        self._load = 1
        self._costs: list[float] = []
        self._measured = 0  # longest draft that was measured; none is more than twice as long
        self._until_refresh = 0
        self._asked = 0
        self._probing = False
        self._idle = 0
        self._gap = FIRST_GAP
        self._rounds = self._drafted = self._accepted = 0  # of rounds that drafted
        self._late_tokens = self._late_seconds = 0.0

    def budget(self, load: int) -> Budget:
        self._asked = 0
        if self._score.seen(load) < FIRST_LOOKS:
            self._load = load
            return PLAIN  # the price of a plain pass is what all else is compared with
        if self._until_refresh <= 0 or load != self._load:
            self._refresh(load)
        self._until_refresh -= 1
        self._probing = self._idle >= self._gap
        if self._probing:
            self._gap = min(2 * self._gap, LAST_GAP)
            self._idle = 0
            budget = Budget.chain(PROBE if self._self_limiting else self._first_length)
        else:
            budget = self._deep() if self._self_limiting else self._best()
        depth = min(budget.depth, max(PROBE, 2 * self._measured))
        plain = self._costs[0]
        while depth and self._costs[depth] - plain > self._ledger * plain:
            depth -= 1
        self._asked = depth
        return budget if depth == budget.depth else Budget(depth, depth, budget.min_path_probability)

    def _refresh(self, load: int) -> None:
        """Looks up [LONGEST + 1] the seconds of a round by draft length, in each request of the load."""
        self._load = load
        plain = self._score(load)
        self._costs = [plain]
        for d in range(1, LONGEST + 1):
            score = max(self._score(load * (1 + d)), plain * (1 + LEAST_ROW_COST * d))
            self._costs.append(score + self._draft(d))
        self._until_refresh = REFRESH

    def _deep(self) -> Budget:
        costs = self._costs
        typical = max(2, round(self._drafted / self._rounds)) if self._rounds else self._first_length
        row = (costs[typical] - costs[0]) / typical
        rate = max(self._late_tokens / self._late_seconds if self._late_seconds else 0.0, 1 / costs[0])
        return Budget(LONGEST, LONGEST, max(0.0, min(1.0, rate * row)))

    def _best(self) -> Budget:
        if self._rounds < 2:
            return Budget.chain(self._first_length)
        best, length, expected = 1 / self._costs[0], 0, 1.0
        for i, path in enumerate(self._acceptance.reached(LONGEST), 1):
            expected += path
            rate = expected / self._costs[i]
            if rate > best:
                best, length = rate, i
        return Budget.chain(length)

    def observe(self, step: Step) -> None:
        drafted, accepted, seconds = step.drafted, step.accepted, step.seconds
        rows = self._load * (1 + len(step.draft))
        self._score.observe(rows, seconds.score + seconds.verify)
        # A model's first draft also pays for its prefill, which says nothing of later ones.
        if self._asked and (self._rounds or self._self_limiting):
            self._draft.observe(drafted, seconds.draft)
        if self._score.seen(rows) <= SURE:
            self._until_refresh = 0
        if drafted:
            self._measured = max(self._measured, drafted)
            self._learn(drafted, accepted, bool(step.finish))
        else:
            self._idle += 1
        if self._until_refresh <= 0:
            self._refresh(self._load)
        plain, cost = self._costs[0], self._costs[min(drafted, LONGEST)]
        tokens = len(step.tokens)
        self._late_tokens = 0.95 * self._late_tokens + tokens
        self._late_seconds = 0.95 * self._late_seconds + cost
        self._ledger = min(self._ceiling, self._ledger + (1 + ALLOWANCE) * tokens - cost / plain)

    def _learn(self, drafted: int, accepted: int, cut: bool) -> None:
        self._rounds += 1
        self._drafted += drafted
        self._accepted += accepted
        self._idle = 0
        if accepted or not self._probing:
            self._gap = FIRST_GAP
        if not cut:
            self._acceptance.observe(drafted, accepted)

    def reason(self) -> str:
        if not self._rounds:
            return "nothing drafted"
        mean = self._drafted / self._rounds
        rows = 1 + round(mean)
        return (
            f"{mean:.1f} tokens a draft, {100 * self._accepted / self._drafted:.0f} % accepted, "
            f"{rows} rows cost {self._score(rows) / self._score(1):.2f} of one"
        )
