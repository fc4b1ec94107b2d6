"""A discrete-event model of a server: latency and goodput against load, with and without speculation.

The server works in turns, as `serve.scheduler` does: each reads one slice of one waiting prompt, then all running
requests share one pass. Requests arrive by a Poisson process; a request in which a draft of gamma tokens is scored
commits 1 + (accepted) tokens, accepted being geometric in alpha and cut at gamma (Leviathan et al. 2023, equation 1).
With one slot, no drafts and fixed lengths it is the M/D/1 queue, whose mean wait is known.
"""

from __future__ import annotations

import random
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from outpace.errors import UsageError
from outpace.theory import checks
from outpace.theory.costs import SecondsByRows
from outpace.theory.speedup import tokens_per_step

AUTOMATIC = None
"""The draft length that is expected to give the most tokens per second at the load of the moment, 0 among them."""

LONGEST = 15


@dataclass(frozen=True, slots=True)
class Machine:
    """What work costs. score: T(n), seconds of a pass over n rows of one request.

    request_seconds: what each further request adds to a pass beside its rows, as its cache is read apart.
    prefill_tokens_per_second: of prompts. slice_tokens: of a prompt, read in one turn. turn_seconds: what a turn
    costs beside the engine. slots: requests that run at a time.
    """

    score: SecondsByRows
    prefill_tokens_per_second: float
    slice_tokens: int = 128
    turn_seconds: float = 0.0
    slots: int = 16
    request_seconds: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("prefill_tokens_per_second", self.prefill_tokens_per_second, "tokens/s")
        checks.count("slice_tokens", self.slice_tokens, 1, "tokens")
        checks.not_negative("turn_seconds", self.turn_seconds, "seconds")
        checks.count("slots", self.slots, 1, "requests")
        checks.not_negative("request_seconds", self.request_seconds, "seconds")

    def pass_seconds(self, load: int, length: int) -> float:
        """Returns the seconds of a pass in which `load` requests have `length` drafted rows each."""
        return self.score(load * (1 + length)) + self.request_seconds * (load - 1)


MOST_TOKENS = 100_000_000
"""Of a simulation; more would take hours."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What arrives. rate: requests a second, inf for all at once. Each has so many tokens; output is their mean.

    varied: output lengths are geometric with that mean; otherwise all are equal.
    """

    rate: float
    requests: int = 500
    prompt_tokens: int = 128
    output_tokens: int = 128
    varied: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        checks.positive("rate", self.rate, "requests/s") if self.rate != inf else None
        checks.count("requests", self.requests, 1, "requests")
        checks.count("prompt_tokens", self.prompt_tokens, 1, "tokens")
        checks.count("output_tokens", self.output_tokens, 1, "tokens")
        tokens = self.requests * (self.prompt_tokens + self.output_tokens)
        if tokens > MOST_TOKENS:
            raise UsageError(f"all requests together may have {MOST_TOKENS:,} tokens, got {tokens:,}: simulate fewer")

    def arrivals(self) -> list[tuple[float, int]]:
        """Returns (second, output tokens) of each request, in order."""
        rng = random.Random(self.seed)
        now, found = 0.0, []
        for _ in range(self.requests):
            now += rng.expovariate(self.rate) if self.rate != inf else 0.0
            tokens = self.output_tokens
            if self.varied and tokens > 1:
                tokens = 1 + _geometric(rng, 1.0 - 1.0 / tokens, 1 << 20)
            found.append((now, tokens))
        return found


@dataclass(frozen=True, slots=True)
class Speculation:
    """How drafts are made. draft_length: AUTOMATIC, or a fixed one; 0 is plain. acceptance: alpha of one token.

    draft_seconds_per_token: of a pass of the drafter, which the requests of a turn share.
    """

    draft_length: int | None = 0
    acceptance: float = 0.0
    draft_seconds_per_token: float = 0.0

    def __post_init__(self) -> None:
        checks.fraction("acceptance", self.acceptance)
        checks.not_negative("draft_seconds_per_token", self.draft_seconds_per_token, "seconds")
        if self.draft_length is not AUTOMATIC:
            checks.count("draft_length", self.draft_length, 0, "tokens")

    def length_at(self, load: int, machine: Machine) -> int:
        """Returns the draft length when `load` requests share a pass."""
        if self.draft_length is not AUTOMATIC:
            return self.draft_length

        def rate(length: int) -> float:
            seconds = machine.pass_seconds(load, length) + length * self.draft_seconds_per_token
            return tokens_per_step(self.acceptance, length) / seconds

        return max(range(LONGEST + 1), key=lambda length: (rate(length), -length))


PLAIN = Speculation()


@dataclass(frozen=True, slots=True)
class Report:
    """What the simulated server did. Seconds; goodput in tokens/s over the whole run.

    latency: from arrival to the last token; first: to the first; between: per output token after the first. Each
    is (median, 90th, 99th percentile). load: requests that shared a pass, on average. busy: share of time at work.
    """

    goodput: float
    latency: tuple[float, float, float]
    first: tuple[float, float, float]
    between: tuple[float, float, float]
    mean_wait: float
    mean_latency: float
    load: float
    draft_length: float
    busy: float


@dataclass(slots=True)
class _Request:
    arrived: float
    left: int
    prompt_left: int
    tokens: int
    admitted: float = 0.0
    first: float = 0.0
    done: float = 0.0


def simulate(machine: Machine, traffic: Traffic, speculation: Speculation = PLAIN) -> Report:
    """Returns what a server of this kind does with this traffic. Deterministic: a function of its arguments."""
    rng = random.Random(f"{traffic.seed} accept")
    coming = deque(_Request(second, tokens, traffic.prompt_tokens, tokens) for second, tokens in traffic.arrivals())
    waiting: deque[_Request] = deque()
    reading: deque[_Request] = deque()
    running: list[_Request] = []
    done: list[_Request] = []
    lengths: dict[int, int] = {}
    now = busy = 0.0
    passes = shared = drafted = 0
    while coming or waiting or reading or running:
        if not (waiting or reading or running):
            now = max(now, coming[0].arrived)
        while coming and coming[0].arrived <= now:
            waiting.append(coming.popleft())
        while waiting and len(reading) + len(running) < machine.slots:
            waiting[0].admitted = now
            reading.append(waiting.popleft())
        spent = machine.turn_seconds + _read(machine, reading, running)
        if running:
            load = len(running)
            length = lengths.setdefault(load, speculation.length_at(load, machine))
            spent += machine.pass_seconds(load, length) + length * speculation.draft_seconds_per_token
            passes, shared, drafted = passes + 1, shared + load, drafted + length
            for request in running:
                accepted = _geometric(rng, speculation.acceptance, length)
                request.left -= min(request.left, 1 + accepted)
                request.first = request.first or now + spent
                if not request.left:
                    request.done = now + spent
            done += [request for request in running if not request.left]
            running = [request for request in running if request.left]
        now += spent
        busy += spent
    return _report(done, now, busy, shared / passes, drafted / passes)


def _read(machine: Machine, reading: deque[_Request], running: list[_Request]) -> float:
    """Reads a slice of the next prompt; returns the seconds. A prompt that is read joins those that run."""
    if not reading:
        return 0.0
    request = reading.popleft()
    tokens = min(machine.slice_tokens, request.prompt_left)
    request.prompt_left -= tokens
    if request.prompt_left:
        reading.append(request)
    else:
        running.append(request)
    return tokens / machine.prefill_tokens_per_second


def _geometric(rng: random.Random, chance: float, most: int) -> int:
    """Returns how often in a row something of this chance happens, at most `most` times."""
    count = 0
    while count < most and rng.random() < chance:
        count += 1
    return count


def _report(done: Sequence[_Request], end: float, busy: float, load: float, draft_length: float) -> Report:
    begun = min(request.arrived for request in done)
    latencies = [request.done - request.arrived for request in done]
    between = [(r.done - r.first) / (r.tokens - 1) for r in done if r.tokens > 1]
    return Report(
        goodput=sum(request.tokens for request in done) / (end - begun),
        latency=percentiles(latencies),
        first=percentiles([request.first - request.arrived for request in done]),
        between=percentiles(between or [0.0]),
        mean_wait=statistics.fmean(request.admitted - request.arrived for request in done),
        mean_latency=statistics.fmean(latencies),
        load=load,
        draft_length=draft_length,
        busy=busy / (end - begun),
    )


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median, the 90th and the 99th percentile, each an observed value."""
    if not values:
        raise UsageError("percentiles need at least one value")
    ordered = sorted(values)
    return tuple(ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.9, 0.99))  # type: ignore[return-value]
