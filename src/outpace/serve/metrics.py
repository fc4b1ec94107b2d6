"""Counters for Prometheus. Those of speculation have vLLM's names and meanings, under our prefix."""

from __future__ import annotations

from collections import deque

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from outpace.result import Result
from outpace.types import Step

CONTENT_TYPE = CONTENT_TYPE_LATEST

_MOST_UNCOUNTED = 1_000
"""Rounds that wait to be counted at most: their Steps are memory, and counting them is a pause between two passes."""

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """One server's counters, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._uncounted: deque[tuple[Step, float]] = deque()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"outpace:{name}", text, labels, registry=self._registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"outpace:{name}", text, registry=self._registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"outpace:{name}", text, registry=self._registry, buckets=_SECONDS)

        self._drafts = counter("spec_decode_num_drafts", "Drafts that were verified")
        self._drafted = counter("spec_decode_num_draft_tokens", "Tokens that were drafted and verified")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Draft tokens that were accepted")
        self._by_position = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Draft tokens that were accepted, by position", "position"
        )
        self._plain = counter("spec_decode_plain_rounds", "Rounds without a draft")
        self._rows = counter("rows_scored", "Rows of requests that the target scored")
        self._draft_seconds = counter("draft_seconds", "Seconds that requests spent drafting")
        self._score_seconds = counter("score_seconds", "Seconds that requests spent in the target's passes")
        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts")
        self._cached_tokens = counter("prompt_tokens_cached", "Tokens of prompts that were cached already")
        self._generation_tokens = counter("generation_tokens", "Tokens that were generated")
        self._finished = counter("request_success", "Finished requests", "finished_reason")
        self._failed = counter("request_failed", "Requests that ended with an error", "error")
        self._rules = counter("requests_by_rule", "Finished requests by rule and drafter", "rule", "drafter")
        self._faults = counter("drafter_faults", "Requests that fell back to plain decoding because a drafter failed")
        self.refused = counter("request_refused", "Requests refused because the queue was full")
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first token")
        self._between = histogram("time_per_output_token_seconds", "Between tokens: of a round, over its tokens")
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the last token")
        self._waiting = gauge("num_requests_waiting", "Requests that wait for a place")
        self._running = gauge("num_requests_running", "Requests that are prefilled or decoded")
        self._held = gauge("cache_tokens_reserved", "Tokens that admitted requests may come to hold")

    def state(self, waiting: int, running: int, held: int) -> None:
        self._waiting.set(waiting)
        self._running.set(running)
        self._held.set(held)

    def prompt(self, tokens: int, cached: int) -> None:
        self._prompt_tokens.inc(tokens)
        self._cached_tokens.inc(cached)

    def step(self, step: Step, seconds: float) -> None:
        """Counts one request's round, which took `seconds` since its last one; cheap, as it stands between passes."""
        self._uncounted.append((step, seconds))
        if len(self._uncounted) > _MOST_UNCOUNTED:
            self._count()

    def _count(self) -> None:
        """Counts what waits: sums first, as a counter's lock and label cost more than an addition."""
        drafts = drafted = plain = rows = tokens = 0
        draft_seconds = score_seconds = 0.0
        reached: list[int] = []  # [depth] drafts of which so much was accepted
        while self._uncounted:
            try:
                step, seconds = self._uncounted.popleft()
            except IndexError:  # another thread has counted it
                break
            self._between.observe(seconds / len(step.tokens))
            tokens += len(step.tokens)
            rows += 1 + len(step.draft)
            draft_seconds += step.seconds.draft
            score_seconds += step.seconds.score
            if not step.drafted:
                plain += 1
                continue
            drafts += 1
            drafted += step.drafted
            reached += [0] * (step.accepted - len(reached))
            for position in range(step.accepted):
                reached[position] += 1
        self._generation_tokens.inc(tokens)
        self._rows.inc(rows)
        self._draft_seconds.inc(draft_seconds)
        self._score_seconds.inc(score_seconds)
        self._plain.inc(plain)
        self._drafts.inc(drafts)
        self._drafted.inc(drafted)
        self._accepted.inc(sum(reached))
        for position, count in enumerate(reached):
            self._by_position.labels(str(position)).inc(count)

    def finished(self, result: Result, seconds: float) -> None:
        self._finished.labels(result.finish).inc()
        self._rules.labels(result.rule, result.drafter).inc()
        self._whole.observe(seconds)
        if result.fault:
            self._faults.inc()

    def failed(self, error: str) -> None:
        self._failed.labels(error).inc()

    def text(self) -> bytes:
        """Returns the exposition in Prometheus' text format."""
        self._count()
        return generate_latest(self._registry)
