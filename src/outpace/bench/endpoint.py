"""`outpace tune --endpoint`: what a server does with speculation, measured from outside.

Tokens are those of the server's own usage: a chunk of a stream may hold several, or none. Decoding is the time of a
whole answer less that of an answer of one token. Acceptance comes from the counters at /metrics, where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter as clock
from typing import Any

from outpace.audit.server import Answer, BadAnswer, Refused, Server
from outpace.bench.counters import Counters, read_counters
from outpace.bench.intervals import Interval, of_totals, of_turns, rate
from outpace.errors import OutpaceError
from outpace.theory.costs import StepCosts, best_draft_length, flat, independence_error

LOADS = (1, 2, 4, 8)
"""Requests at once that are tried."""

COSTS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Of a drafted token, in passes: from outside nobody sees what a draft costs, so lengths are given for each."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timed:
    """One prompt, greedy. tokens, seconds: after the first token, the median of repeats; first_seconds: cold.

    plain_seconds: of the same answer without speculation, where the server can be asked for it.
    """

    prompt_tokens: int
    tokens: int
    seconds: float
    first_seconds: float
    plain_seconds: float | None = None


@dataclass(slots=True)
class EndpointTuning:
    """What was measured until it was done, or until `stopped` says why it ended."""

    url: str
    model: str
    answers: list[Timed] = field(default_factory=list)
    tokens_per_second_at: dict[int, float] = field(default_factory=dict)
    counters: Counters | None = None
    stopped: str | None = None

    @property
    def decoding(self) -> Interval | None:
        """Tokens/s of one request after its first token; None before any was measured."""
        rows = [(one.tokens, one.seconds) for one in self.answers]
        return rate(rows) if rows else None

    @property
    def speedup(self) -> Interval | None:
        """Times plain decoding; None where the server was not asked to decode plainly."""
        rows = [(one.plain_seconds, one.seconds) for one in self.answers if one.plain_seconds is not None]
        return of_totals(rows, lambda total: total[..., 0] / total[..., 1]) if rows else None

    @property
    def best_lengths(self) -> dict[float, int]:
        """Cost of a drafted token -> best draft length among those that were drafted; empty without counters."""
        alphas = self.counters.conditional if self.counters else ()
        if not alphas:
            return {}
        return {
            cost: best_draft_length(alphas, StepCosts(flat(1.0), draft_seconds_per_token=cost)).draft_length
            for cost in COSTS
        }

    @property
    def independence_error(self) -> float | None:
        """By what share one acceptance for all positions would overstate tokens a step; None without counters."""
        reached = self.counters.by_position if self.counters else ()
        if not self.counters or not reached or not all(reached[:-1]):
            return None
        return independence_error(reached, (self.counters.drafts, *reached[:-1]))

    @property
    def cut_off(self) -> int | None:
        """The most requests at once up to which each load gave more tokens/s than the one before it."""
        best = None
        for load, speed in self.tokens_per_second_at.items():
            if best is not None and speed <= self.tokens_per_second_at[best]:
                break
            best = load
        return best

    def record(self) -> dict[str, Any]:
        decoding, speedup = self.decoding, self.speedup
        return {
            "format": "outpace tune endpoint 1",
            "url": self.url,
            "model": self.model,
            "prompts": len(self.answers),
            "first_seconds": [one.first_seconds for one in self.answers],
            "tokens": [one.tokens for one in self.answers],
            "tokens_per_second": None if decoding is None else decoding.record(),
            "speedup": None if speedup is None else speedup.record(),
            "tokens_per_second_at": {str(load): speed for load, speed in self.tokens_per_second_at.items()},
            "counters": None if self.counters is None else self.counters.record(),
            "independence_error": self.independence_error,
            "best_lengths": [{"cost": cost, "draft_length": length} for cost, length in self.best_lengths.items()],
            "stopped": self.stopped,
        }


def tune_endpoint(
    server: Server,
    prompts: Sequence[str],
    *,
    plain: Server | None = None,
    max_tokens: int = 96,
    repeats: int = 2,
    loads: Sequence[int] = LOADS,
    progress: Progress = lambda what: None,
) -> EndpointTuning:
    """Returns what could be measured; `stopped` says what ended it early, and what was measured is kept.

    plain: the same server, asked in a way that it answers without speculation.
    """
    found = EndpointTuning(server.url, server.model)
    try:
        _measure(found, server, plain, prompts, max_tokens, repeats, loads, progress)
    except (OutpaceError, BadAnswer, Refused) as error:
        found.stopped = str(error)
    return found


def _measure(
    found: EndpointTuning,
    server: Server,
    plain: Server | None,
    prompts: Sequence[str],
    max_tokens: int,
    repeats: int,
    loads: Sequence[int],
    progress: Progress,
) -> None:
    before = _counters(server)
    for number, prompt in enumerate(prompts, 1):
        progress(f"prompt {number} of {len(prompts)}")
        found.answers.append(_timed(server, plain, prompt, max_tokens, repeats))
        found.counters = _since(before, server)
    for load in loads:
        progress(f"{load} at once")
        asked = [*islice(cycle(prompts), 2 * load)]
        start = clock()
        with ThreadPoolExecutor(load) as pool:
            answers = [*pool.map(lambda prompt: _ask(server, prompt, max_tokens), asked)]
        found.tokens_per_second_at[load] = sum(map(_tokens, answers)) / (clock() - start)


def _timed(server: Server, plain: Server | None, prompt: str, max_tokens: int, repeats: int) -> Timed:
    start = clock()
    first = _ask(server, prompt, 1)
    cold = clock() - start
    spent: list[list[float]] = [[], []]
    tokens = 0
    for repeat in range(repeats):
        ways = [(0, server)] if plain is None else [(0, server), (1, plain)]
        for place, one in ways if repeat % 2 else reversed(ways):
            start = clock()
            _ask(one, prompt, 1)
            warm = clock()
            answer = _ask(one, prompt, max_tokens)
            spent[place].append((clock() - warm) - (warm - start))
            if place == 0:
                tokens = _tokens(answer) - 1
    if tokens < 1:
        raise OutpaceError("an answer ended after its first token: ask longer questions")
    # One request that was held up must not end the run, most of them must not have been.
    turns = [turn for turn in zip(spent[1] if plain else spent[0], spent[0], strict=True) if min(turn) > 0]
    if 2 * len(turns) <= repeats:
        raise OutpaceError(f"{tokens + 1} tokens take no longer than one: ask for more with --max-tokens")
    prompt_tokens = first.usage.prompt if first.usage else 0
    plain_seconds, seconds = of_turns(*zip(*turns, strict=True))
    return Timed(prompt_tokens, tokens, seconds, cold, plain_seconds if plain else None)


def _ask(server: Server, prompt: str, max_tokens: int) -> Answer:
    return server.ask(prompt, max_tokens=max_tokens, temperature=0)


def _tokens(answer: Answer) -> int:
    if answer.usage is None:
        raise OutpaceError("the server reports no usage, and chunks are not tokens: its tokens cannot be counted")
    return answer.usage.completion


def _counters(server: Server) -> Counters | None:
    text = server.metrics()
    return None if text is None else read_counters(text)


def _since(before: Counters | None, server: Server) -> Counters | None:
    after = _counters(server)
    return None if before is None or after is None else after.since(before)
