"""Throughput by clients: automatic drafting against none and against a fixed length."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from acceptance import Outcome
from first_light.common import EMBEDDED, file_of, per_task

from serving.servers import Server, ours

CLIENTS = (1, 2, 4, 8, 16)
MODES: dict[str, dict[str, Any]] = {
    "off": {"off": True},
    "on": {"drafter": "ngram", "draft_length": 4},
    "auto": {},
}
REPEATS, TOKENS = 3, 96


def bodies(count: int, speculation: dict[str, Any], tokens: int = TOKENS) -> list[dict[str, Any]]:
    """Returns requests over real prompts of every task in turn."""
    questions = [prompt for _, prompt in per_task(-(-count // 6))]
    return [
        {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "temperature": 0,
            "speculation": speculation,
        }
        for question in questions[:count]
    ]


def rates(server: Server, clients: int) -> dict[str, float]:
    """Returns the median tokens/s of each mode, interleaved."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    count = max(8, 2 * clients)
    server.rate(clients, bodies(count, {}))  # what is cached afterwards is cached for all modes
    for _ in range(REPEATS):
        for mode, speculation in MODES.items():
            found[mode].append(server.rate(clients, bodies(count, speculation)))
    return {mode: statistics.median(values) for mode, values in found.items()}


def load() -> Iterator[Outcome]:
    file_of(EMBEDDED)
    with ours(EMBEDDED) as server:
        for clients in CLIENTS:
            by_mode = rates(server, clients)
            ratio = by_mode["auto"] / max(by_mode["off"], by_mode["on"])
            figures = ", ".join(f"{mode} {rate:.0f}" for mode, rate in by_mode.items())
            yield Outcome(f"{clients} clients", f"{ratio:.2f} ({figures} tokens/s)", "at least 0.97", ratio >= 0.97)


LINES = [("load", "automatic drafting is never slower than the better of on and off, whatever the load", load)]
