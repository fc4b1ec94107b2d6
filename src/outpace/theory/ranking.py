"""One candidate under the loads of a question: its speed-up, what it takes of the memory, and the reason in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any

from outpace.theory import candidates as drafters
from outpace.theory import memory, roofline
from outpace.theory.candidates import Candidate
from outpace.theory.costs import StepCosts, best_draft_length, speedup
from outpace.theory.question import Question
from outpace.theory.shape import presets
from outpace.theory.speedup import Choice, can_pay, tokens_per_step

LEAST_GAIN = 1.05
"""The speed-up below which a plan says "do not speculate": less is within the model's own error."""

LONGEST = {"draft": 16, "eagle": 6, "ngram": 16}
"""The longest draft weighed by kind of drafter; a head is trained to follow its own output for a few tokens only."""

NEAR_BEST = 0.99
"""The shortest draft that reaches this share of the best speed-up is taken: longer ones only make latency vary."""


@dataclass(frozen=True, slots=True)
class Load:
    """A candidate at one concurrency: its draft length, or 0 for plain decoding.

    speedup: over plain at the same concurrency, whether or not so many fit. scoring: T(n) / T(1), n the rows of a
    step, or 2 where the length is 0. seconds_per_token: of one request. meets_target: None without a latency target.
    """

    requests: int
    fits: bool
    draft_length: int
    tokens_per_step: float
    speedup: float
    cost: float
    scoring: float
    seconds_per_token: float
    meets_target: bool | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with what the plan says of it.

    pays_up_to: the greatest concurrency at which it still pays, memory aside; None where it always does.
    requests: how many fit with it; requests_lost: how many fewer than without it.
    """

    candidate: Candidate
    loads: tuple[Load, ...]
    speculate: bool
    reason: str
    pays_up_to: int | None
    weight_bytes: float
    cache_bytes_per_request: float
    requests: int
    requests_lost: int
    rule_of_thumb: str | None

    @property
    def first(self) -> Load:
        """The load planned for."""
        return self.loads[0]

    def record(self) -> dict[str, Any]:
        """Returns everything as plain values for JSON."""
        candidate, record = self.candidate, asdict(self)
        del record["candidate"]
        return {
            "name": candidate.name,
            "kind": candidate.kind,
            "named": candidate.named,
            "parameters": candidate.shape.parameters if candidate.shape else 0,
            "acceptance": candidate.acceptance.value,
        } | record


def rank(question: Question, candidate: Candidate, alone: memory.Fit) -> Ranked:
    """Returns the candidate judged; alone: the memory of the target without a draft."""
    demand = question.demand(candidate.shape)
    fit = memory.fit(demand, question.device) if candidate.shape else alone
    loads = tuple(_load(question, candidate, fit, requests) for requests in question.concurrency)
    first = loads[0]
    rule = None
    if candidate.kind == "draft" and candidate.shape:
        choice = Choice(first.draft_length, first.tokens_per_step, first.speedup)
        rule = drafters.rule_of_thumb(question.target, candidate.shape, choice, first.cost)
    return Ranked(
        candidate=candidate,
        loads=loads,
        speculate=candidate.unusable is None and first.fits and first.speedup >= LEAST_GAIN,
        reason=_reason(question, candidate, first, demand, alone),
        pays_up_to=roofline.last_paying_batch(
            _alphas(candidate), partial(_costs, question, candidate), least_gain=LEAST_GAIN
        ),
        weight_bytes=fit.draft_weight_bytes,
        cache_bytes_per_request=fit.draft_cache_bytes_per_request,
        requests=fit.requests,
        requests_lost=alone.requests - fit.requests,
        rule_of_thumb=rule,
    )


def gains_by_concurrency(question: Question, ranked: Ranked, most: int) -> list[tuple[int, float]]:
    """Returns (requests, speed-up) at powers of two up to `most`, as far as they fit; empty for what cannot draft."""
    candidate = ranked.candidate
    if candidate.unusable is not None:
        return []
    batches = [1 << power for power in range(most.bit_length()) if 1 << power <= min(most, ranked.requests)]
    costs = partial(_costs, question, candidate)
    return [(batch, _shortest_near_best(candidate, costs(batch)).speedup) for batch in batches]


def gains_by_length(
    question: Question, ranked: Ranked, acceptances: Sequence[float]
) -> dict[float | None, list[tuple[int, float]]]:
    """Returns (draft length, speed-up) at the load planned for, by acceptance; None: the candidate's own."""
    candidate, step = ranked.candidate, _costs(question, ranked.candidate, ranked.first.requests)
    longest = range(1, LONGEST[candidate.kind] + 1)
    rates: dict[float | None, float] = {alpha: alpha for alpha in acceptances if alpha != candidate.acceptance.value}
    return {
        name: [(length, speedup(tokens_per_step(alpha, length), length, step)) for length in longest]
        for name, alpha in (rates | {None: candidate.acceptance.value}).items()
    }


def plain(question: Question, fit: memory.Fit, requests: int) -> Load:
    """Returns the target without a drafter at one concurrency."""
    target = question.deployment(question.target, question.precision)
    seconds, two = (target.seconds(requests, rows, question.context) for rows in (1, 2))
    met = _meets(question, seconds)
    return Load(requests, fit.fits(requests), 0, 1.0, 1.0, 0.0, two / seconds, seconds, met)


def does_not_fit(question: Question, demand: memory.Demand, who: str) -> str:
    """Returns by how much it does not fit, the largest draft that would, and the next device on which it does."""
    requests, device = question.concurrency[0], question.device
    fit = memory.fit(demand, device)
    where = f"{question.devices} x {device.name}" if question.devices > 1 else device.name
    missing = fit.missing_bytes(requests) / 1e9
    text = (
        f"{who} does not fit on {where} with {requests:,} at once: {missing:.1f} GB are missing, {fit.requests:,} fit"
    )
    if demand.draft is not None:
        family = [shape for shape in presets().values() if drafters.is_family_draft(question.target, shape)]
        largest = memory.largest_draft(demand, device, family, requests)
        text += f"; the largest draft that does: {largest.name}" if largest else "; no known draft does"
    arithmetic = question.precision.arithmetic
    able = {name: one for name, one in roofline.devices().items() if arithmetic in one.flop_per_s}
    able = {name: one for name, one in able.items() if demand.devices == 1 or one.link_bytes_per_s > 0}
    as_fast = {name: one for name, one in able.items() if one.bytes_per_s >= device.bytes_per_s}
    larger = memory.next_device(demand, as_fast, requests) or memory.next_device(demand, able, requests)
    if larger is None:
        return text + f"; nor on any known device (count {demand.devices}): more devices, or fewer bits"
    return text + f"; the next device on which it fits: {larger.name}"


def _alphas(candidate: Candidate) -> list[float]:
    return [candidate.acceptance.value] * LONGEST[candidate.kind]


def _costs(question: Question, candidate: Candidate, requests: int) -> StepCosts:
    target = question.deployment(question.target, question.precision)
    draft = None
    if candidate.shape:
        draft = question.deployment(candidate.shape, question.draft_precision or question.precision)
    step = roofline.step_costs(target, draft, requests, question.context)
    if question.cost is not None and candidate.kind == "draft":
        return replace(step, draft_seconds_per_token=question.cost * step.plain_seconds)
    return step


def _shortest_near_best(candidate: Candidate, costs: StepCosts) -> Choice:
    alphas = _alphas(candidate)
    best = best_draft_length(alphas, costs)
    if not best.pays:
        return best
    for length, tokens in enumerate(accumulate(accumulate(alphas, mul), initial=1.0)):
        gain = speedup(tokens, length, costs)
        if length and gain >= NEAR_BEST * best.speedup:
            return Choice(length, tokens, gain)
    return best


def _load(question: Question, candidate: Candidate, fit: memory.Fit, requests: int) -> Load:
    costs = _costs(question, candidate, requests)
    choice = _shortest_near_best(candidate, costs)
    seconds = costs.plain_seconds / choice.speedup
    return Load(
        requests=requests,
        fits=fit.fits(requests),
        draft_length=choice.draft_length,
        tokens_per_step=choice.tokens_per_step,
        speedup=choice.speedup,
        cost=costs.draft_cost,
        scoring=costs.score((choice.draft_length or 1) + 1) / costs.plain_seconds,
        seconds_per_token=seconds,
        meets_target=_meets(question, seconds),
    )


def _meets(question: Question, seconds: float) -> bool | None:
    limit = question.latency_target_seconds
    return None if limit is None else seconds <= limit


def _reason(question: Question, candidate: Candidate, load: Load, demand: memory.Demand, alone: memory.Fit) -> str:
    """Returns why a candidate pays or does not, with the figures that decide it."""
    alpha, target = candidate.acceptance.value, question.target.name
    if candidate.unusable:
        return candidate.unusable
    if not alone.fits(load.requests):
        return f"{target} alone does not fit"
    if not load.fits:
        return does_not_fit(question, demand, f"{target} with {candidate.name}")
    if not can_pay(alpha, load.cost):
        return f"c = {load.cost:.3f} is not below alpha = {alpha:.3f} (Leviathan et al., Corollary 3.9)"
    figures = f"alpha = {alpha:.3f}, c = {load.cost:.3f}"
    rows = (load.draft_length or 1) + 1
    scoring = f"{rows} rows score in {load.scoring:.2f} times the time of one"
    if load.speedup >= LEAST_GAIN:
        return f"{figures}; {scoring}" + ("; it must be trained for this target" if candidate.kind == "eagle" else "")
    limit = roofline.bandwidth_bound_rows(question.deployment(question.target, question.precision))
    if load.scoring > 1.1 and load.requests * rows > limit:
        return (
            f"{figures}, but {scoring}: {load.requests * rows:,} rows a pass are bound by arithmetic, which begins "
            f"after {limit:,} rows here"
        )
    gain = f"{load.speedup:.2f} times plain at best" if load.draft_length else "no draft length gains anything"
    return f"{figures}; {scoring}: {gain}"
