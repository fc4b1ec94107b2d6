"""What passes cost on this machine with this model: all that controllers learn which outlives a request."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

ROW_COST = 0.06
"""A further row's cost in passes of one row, until it is measured."""

SHARED_ROW_COST = 0.12
"""The same of a pass that several requests share: beyond a few rows products take their time by the row."""

LEAST_ROW_COST = 0.02
"""What a further row costs at least, whatever noisy clocks say."""

REFRESH = 8
"""Passes that are learnt from together: each evicts what Python needs for it from the caches, so that one is dear."""

MOST_ROWS = 1 << 12
"""In one pass that a profile may speak of."""

LATE = 25
"""Measurements of one count that are remembered; their median is robust against a machine that does other work."""

FIRST_LOOKS = 3
"""Plain passes that are measured before anything is drafted, once for each model."""

LOOK = 64
"""Passes in a row with drafts, after which a plain one is measured again: a clock that only ever sees drafts cannot
tell a slower machine from dearer rows."""

LONG = 8
"""Passes in a row with drafts, after which a plain one says how wrong their costs have become."""

SURE = 4
"""Measurements of one count after which a further one is no news."""

FOLLOWED = 1.05
"""How far one pass with drafts may seem to be from the plain one's time: single slow ones are not rare."""

NEWS = 1.5
"""What a count's first few measurements may be at most, times what was expected of it."""

TILTS, MOST_TILT = 7, 2.5
"""Measurements that the tilt of a cost curve is the median of, and how many of its steps it may be."""

DOUBT = 2
"""Rows by which a measurement's lever is taken to be longer than it is: two rows say little about eight."""


class CostCurve:
    """Costs by a count of rows or tokens: late medians where measured, straight lines between and beyond.

    start: (count, cost) that is known. step: the least that one more costs beyond what was measured. Machines change
    their ways (memory slows down, a neighbour computes), and then all counts become dearer or cheaper together, by
    about as much for each row: the tilt, a median of the last few measurements of any count, follows at once.
    """

    def __init__(self, start: tuple[int, float], step: float) -> None:
        self._step = step
        self._start = start[0]
        self._late: dict[int, deque[float]] = {}
        self._new: dict[int, int] = {}  # measurements since `settle`
        self._costs: dict[int, float] = dict([start])
        self._slopes: deque[float] = deque(maxlen=TILTS)
        self._tilt = 0.0
        self._last = start[0]

    def observe(self, count: int, cost: float) -> None:
        late = self._late.get(count)
        if late is None:
            late = self._late[count] = deque(maxlen=LATE)
        beyond = count - self._start
        if len(late) > SURE and beyond:
            most = MOST_TILT * self._step
            slope = (cost - self._costs[count]) / (beyond + DOUBT)
            self._slopes.append(min(max(slope, -most), most))
            self._take_median()
        late.append(cost - self._tilt * beyond)
        self._new[count] = self._new.get(count, 0) + 1
        self._costs[count] = sorted(late)[len(late) // 2]
        self._last = count

    def settle(self, factor: float = 1.0) -> None:
        """Makes what was measured since the last call `factor` times as much: the plain pass was taken wrongly."""
        before, beyond = self._costs[self._last], self._last - self._start
        if factor != 1.0:
            for count, new in self._new.items():
                costs = list(self._late[count])
                kept = max(0, len(costs) - new)
                self._late[count] = late = deque(costs[:kept] + [factor * cost for cost in costs[kept:]], maxlen=LATE)
                self._costs[count] = sorted(late)[len(late) // 2]
            if beyond:
                more = (factor * before - self._costs[self._last]) / (beyond + DOUBT)
                self._slopes = deque((factor * slope + more for slope in self._slopes), maxlen=TILTS)
                self._take_median()
        self._new.clear()

    def _take_median(self) -> None:
        self._tilt = sorted(self._slopes)[len(self._slopes) // 2] if len(self._slopes) > 2 else 0.0

    def record(self) -> dict[str, list[float]]:
        """Returns the late measurements by count, as JSON has them."""
        return {str(count): list(late) for count, late in self._late.items()}

    def learn(self, record: Mapping[str, Sequence[float]]) -> None:
        """Takes over recorded measurements. Raises ValueError for what cannot be costs."""
        for count, costs in record.items():
            if not 0 <= int(count) <= MOST_ROWS or not all(0 <= float(cost) < math.inf for cost in costs):
                raise ValueError(f"no costs of a pass: {count}")
            late = self._late[int(count)] = deque(map(float, costs[-LATE:]), maxlen=LATE)
            if late:
                self._costs[int(count)] = sorted(late)[len(late) // 2]

    def seen(self, count: int) -> int:
        """Returns how often this count was measured, at most LATE."""
        return len(self._late.get(count, ()))

    @property
    def longest(self) -> int:
        """The largest count that was measured; where none was, the one that is known."""
        return max(self._late, default=min(self._costs))

    def __call__(self, count: int) -> float:
        return self._untilted(count) + self._tilt * (count - self._start)

    def _untilted(self, count: int) -> float:
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


class RoundCosts(NamedTuple):
    """What rounds cost by draft length from 0 on, in plain rounds of the same load.

    slopes: [len(costs) - 1] the rises of the convex curve under the costs. alone: [len(costs)] the same where one
    request drafts and the others do not, all of it at that one's expense. passes: what such a plain round costs, in
    plain passes of one request, which take `pass_seconds`.
    """

    costs: list[float]
    slopes: list[float]
    alone: list[float]
    passes: float
    pass_seconds: float

    @property
    def plain_seconds(self) -> float:
        """Of a plain round of that load."""
        return self.passes * self.pass_seconds


class Pass(NamedTuple):
    """A target's pass for one request. opening: the request's first one. drafts: passes with drafts before it."""

    rows: int
    seconds: float
    opening: bool
    drafts: int


class CostProfile:
    """What passes cost on this machine with this model, in plain passes; all that outlives a request.

    A pass is compared with what a plain one takes at that time, so neither a growing context nor a machine that does
    other work for a while distorts the comparison. Between plain passes that time is told from the passes with drafts
    by what they cost before; the next plain pass corrects both.

    score: of the target, by rows of one request. draft: of each drafter, by tokens. Requests that share a pass read
    their caches apart, so that sixteen rows of one request cost half of what sixteen requests do; shared passes have
    a curve for each number of requests.

    Passes of one request are learnt from a few at a time, or when somebody asks for what they say; `of_rounds` may be
    so many passes old.
    """

    def __init__(self) -> None:
        self._plain = 0.0
        self._plain_seen = 0
        self._score = CostCurve((1, 1.0), ROW_COST)
        self._unread: list[Pass] = []
        self.draft: dict[str, CostCurve] = {}
        self._plainly = CostCurve((1, 1.0), SHARED_ROW_COST)  # by requests, of one row each
        self._shared: dict[int, CostCurve] = {}
        self._last_shared = 0.0
        self._drafts_in_a_row = {False: 0, True: 0}  # passes of one request, and shared ones
        self._looked_up: dict[tuple[int, int], RoundCosts] = {}
        self._until_refresh = REFRESH

    @property
    def plain_seconds(self) -> float:
        """What a plain pass of one request takes now; 0 while that is not known."""
        self._read()
        return self._plain

    @property
    def score(self) -> CostCurve:
        """What a pass of one request costs by its rows."""
        self._read()
        return self._score

    def record(self) -> dict[str, Any]:
        """Returns what is known of one request alone, as JSON has it, but for drafters' costs: those are a pair's."""
        return {"plain_seconds": self.plain_seconds, "score": self.score.record()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> CostProfile:
        """Returns the profile of a record. Raises ValueError, KeyError or TypeError where it is none."""
        profile = cls()
        profile._plain = float(record["plain_seconds"])
        if not 0 < profile._plain < math.inf:
            raise ValueError(f"a pass cannot take {profile._plain} seconds")
        profile._plain_seen = FIRST_LOOKS
        profile._score.learn(record["score"])
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
        return self._shared_curve(load)(_bin(load, load * drafted))

    def of_rounds(self, load: int, longest: int) -> RoundCosts:
        """Returns what rounds of `load` requests cost by the length of each one's draft, up to `longest`.

        The same object for all requests until something is learnt.
        """
        found = self._looked_up.get((load, longest))
        if found is None:
            plain, seconds = self.cost(load, 0), self.plain_seconds
            costs = [max(self.cost(load, d) / plain, 1 + LEAST_ROW_COST * d) for d in range(longest + 1)]
            alone = costs if load == 1 else [self.share(load, d, d) for d in range(longest + 1)]
            found = self._looked_up[load, longest] = RoundCosts(costs, convex_slopes(costs), alone, plain, seconds)
        return found

    def share(self, load: int, drafted: int, together: int) -> float:
        """Returns what a round costs one of `load` > 1 requests, which drafted so many of all the rows drafted.

        In plain rounds; what drafts add to everybody's round is charged to those who drafted, by their rows.
        """
        if not together:
            return 1.0
        more = self._shared_curve(load)(_bin(load, together)) / self.cost(load, 0) - 1.0
        return 1.0 + max(load * more * drafted / together, LEAST_ROW_COST * drafted)

    def _shared_curve(self, load: int) -> CostCurve:
        """Returns the curve of passes that so many requests share, by bins of their drafted rows together."""
        if load not in self._shared:
            self._shared[load] = CostCurve((0, self._plainly(load)), SHARED_ROW_COST * _bin_rows(load))
        return self._shared[load]

    def look_is_due(self, load: int) -> bool:
        """Returns whether the next pass of `load` requests should have no drafts, to say what plain ones take."""
        if load == 1 and self._plain_seen < FIRST_LOOKS:
            return True
        return not self._plain or self._drafts_in_a_row[load > 1] >= LOOK

    def observe_shared(self, load: int, rows: int, score: float, verify: float) -> None:
        """Learns from a pass of `load` > 1 requests; each of them reports it, and it counts once.

        score: seconds of the pass. verify: what one of the requests took afterwards.
        """
        if score == self._last_shared:
            return
        self._last_shared = score
        self._read()
        curve, place = self._shared_curve(load), _bin(load, max(0, rows - load))
        self._until_refresh -= 1
        if curve.seen(place) <= SURE or not self._until_refresh:
            self._looked_up.clear()
            self._until_refresh = REFRESH
        seconds = score + load * verify
        self._plain = self._plain or seconds / curve(place)
        if not place and curve.seen(0) > SURE:
            self._look(seconds / curve(0), curve, self._drafts_in_a_row[True], shared=True)
        cost = seconds / self._plain
        if place:
            self._drafts_in_a_row[True] += 1
            if curve.seen(place) > SURE:
                self._follow(seconds / curve(place), 0.1, FOLLOWED)
            else:
                # Who believed one slow pass would draft no more, and not learn that it was an exception.
                cost = min(cost, curve(0) + 1.5 * SHARED_ROW_COST * _bin_rows(load) * place)
        curve.observe(place, cost)
        if not place:
            self._drafts_in_a_row[True] = 0
            self._plainly.observe(load, cost)

    def observe(self, rows: int, seconds: float, opening: bool = False) -> None:
        """Learns from a target's pass for one request, and from it how fast the machine is now.

        opening: the request's first pass; what it differs by from those of another request is its context's length.
        """
        drafts = self._drafts_in_a_row[False]
        self._unread.append(Pass(rows, seconds, opening, drafts))
        if rows == 1:
            self._drafts_in_a_row[False] = 0
            news = opening or self._plain_seen < FIRST_LOOKS or drafts >= LONG
        else:
            self._drafts_in_a_row[False] = drafts + 1
            news = self._score.seen(rows) <= SURE
        if news or len(self._unread) == REFRESH:
            self._read()

    def _read(self) -> None:
        """Learns from what was observed since the last call."""
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        for one in unread:
            if one.rows == 1:
                self._read_plain(one)
            else:
                self._read_drafted(one.rows, one.seconds)
        self._looked_up.clear()

    def _read_plain(self, one: Pass) -> None:
        self._plain_seen += 1
        if self._plain_seen <= FIRST_LOOKS:  # the first passes are often slow ones
            self._plain = min(one.seconds, self._plain or one.seconds)
        elif one.opening:
            self._follow(one.seconds, 0.5, 2.0)
        else:
            self._look(one.seconds, self._score, one.drafts, shared=False)

    def _read_drafted(self, rows: int, seconds: float) -> None:
        known = self._score(rows)
        self._plain = self._plain or seconds / known
        if self._score.seen(rows) > SURE:
            self._follow(seconds / known, 0.1, FOLLOWED)
            self._score.observe(rows, seconds / self._plain)
        else:  # one slow pass would cost this request all further drafts
            self._score.observe(rows, min(seconds / self._plain, NEWS * known))

    def _look(self, seconds: float, curve: CostCurve, drafts: int, *, shared: bool) -> None:
        """Learns from a plain pass after so many drafts, and corrects what they seemed to cost if they were many."""
        before = self._plain
        alone = drafts >= LONG
        self._follow(seconds, 0.5 if alone else 0.1 if shared else 0.3)
        curve.settle(before / self._plain if alone else 1.0)

    def _follow(self, seconds: float, weight: float, most: float = 1.25) -> None:
        now = self._plain
        self._plain += weight * (min(max(seconds, now / most), most * now) - now)


def _bin_rows(load: int) -> int:
    """Returns how many rows' difference hardly tells two passes of so many requests apart."""
    return max(1, load // 4)


def _bin(load: int, drafted: float) -> int:
    """Returns the bin of so many drafted rows; 0 is for none: one row more may need another tile of the kernels."""
    return math.ceil(drafted / _bin_rows(load))
