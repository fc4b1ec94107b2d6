"""Many requests for a long time: memory stays flat, no slot is stuck, no text is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import urllib.request
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

from acceptance import Outcome
from first_light.common import EMBEDDED, file_of, load, per_task

from serving.clients import ask
from serving.servers import Server, ours

SHORT, CLIENTS = 10_000, 8
MINUTES = float(os.environ.get("OUTPACE_MIXED_MINUTES", "30"))
WARM = 500
"""Requests before memory is looked at: pools and caches fill first."""

MIXED_WARM = 1500
"""The same for the mixed load, whose passes and prompts have many sizes: the heap, and the pages of what is open and
of what is kept, reach their bound after about 1000 answers."""

POOL = 48
"""Distinct requests of the mixed load; each answer is compared with its run alone."""


def running(server: Server) -> int:
    """Returns how many requests the server still works on, by its own counters."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    names = ("num_requests_running", "num_requests_waiting")
    return sum(int(float(re.search(rf"^outpace:{name} (\S+)", text, re.M)[1])) for name in names)  # type: ignore[index]


def settled(server: Server, seconds: float = 20.0) -> bool:
    """Whether the server comes to rest."""
    until = monotonic() + seconds
    while running(server) and monotonic() < until:
        sleep(0.1)
    return running(server) == 0


def short() -> Iterator[Outcome]:
    file_of(EMBEDDED)
    bodies = [
        {
            "messages": [{"role": "user", "content": f"What is {i % 97} plus {i % 89}?"}],
            "max_tokens": 4,
            "temperature": i % 2,
            "seed": i,
        }
        for i in range(SHORT)
    ]
    with ours(EMBEDDED, "--context", "1024") as server:
        server.load(CLIENTS, bodies[:WARM])
        before = server.memory_bytes
        found = server.load(CLIENTS, bodies)
        growth = server.memory_bytes / before - 1
        failed = sum("error" in answer for answer in found["answers"])
        rate = SHORT / found["seconds"]
        yield Outcome(f"{SHORT} requests", f"{failed} failed ({rate:.0f} requests/s)", "0 failed", failed == 0)
        yield Outcome("memory", f"{growth:+.1%}", "at most +5 %", growth <= 0.05)
        yield Outcome("slots", "all free" if settled(server) else "some taken", "all free", settled(server))


def pool() -> list[dict[str, Any]]:
    """Returns requests of many kinds."""
    rng = random.Random(5)
    questions = [prompt for _, prompt in per_task(POOL // 6)]
    return [
        {
            "messages": [{"role": "user", "content": question[:2000]}],
            "max_tokens": rng.choice((1, 8, 24, 48)),
            "temperature": rng.choice((0, 0, 0.8, 1)),
            "seed": i,
            "top_p": rng.choice((1, 0.9)),
            "stop": rng.choice((None, None, ["\n\n"], [" the"])),
            "speculation": rng.choice(({}, {"off": True}, {"drafter": "ngram", "draft_length": 6})),
        }
        for i, question in enumerate(questions)
    ]


def alone(bodies: list[dict[str, Any]]) -> list[str]:
    """Returns the text of each request in a run of its own."""
    model = load(EMBEDDED)
    texts = []
    for body in bodies:
        options = {name: body[name] for name in ("max_tokens", "temperature", "seed", "top_p")}
        texts.append(model.generate(body["messages"], stop=body["stop"] or (), **options).text)
    return texts


class Mixed:
    """Clients that ask, vanish, and send nonsense; counts what they got."""

    def __init__(self, server: Server, bodies: list[dict[str, Any]], texts: list[str]) -> None:
        self.server = server
        self.bodies = bodies
        self.texts = texts
        self.right = self.wrong = self.vanished = self.refused = 0
        self.first_wrong = ""

    async def client(self, seed: int, until: float) -> None:
        rng = random.Random(seed)
        while monotonic() < until:
            i = rng.randrange(len(self.bodies))
            kind = rng.random()
            if kind < 0.7:
                await self._compare(i, stream=kind < 0.35)
            elif kind < 0.95:
                await self._vanish(i, rng)
            else:
                await self._nonsense(rng)

    async def _compare(self, i: int, stream: bool) -> None:
        body = {**self.bodies[i], "model": self.server.model, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        answer = await ask("127.0.0.1", self.server.port, body)
        if answer.get("text") == self.texts[i]:
            self.right += 1
        else:
            self.wrong += 1
            self.first_wrong = self.first_wrong or f"request {i}: {str(answer)[:200]}"

    async def _vanish(self, i: int, rng: random.Random) -> None:
        """Goes away after a moment: while waiting, in the prefill, or in the middle of a stream."""
        body = {**self.bodies[i], "model": self.server.model, "stream": True, "max_tokens": 200}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ask("127.0.0.1", self.server.port, body), rng.choice((0.001, 0.02, 0.1, 0.3)))
        self.vanished += 1

    async def _nonsense(self, rng: random.Random) -> None:
        body = rng.choice(({"model": "x"}, {"model": self.server.model}, {**self.bodies[0], "temperature": -1}))
        answer = await ask("127.0.0.1", self.server.port, {"model": self.server.model, **body})
        self.refused += answer["status"] in (400, 404)


async def _run(mixed: Mixed, seconds: float) -> None:
    until = monotonic() + seconds
    await asyncio.gather(*(mixed.client(seed, until) for seed in range(CLIENTS)))


def mixed() -> Iterator[Outcome]:
    file_of(EMBEDDED)
    bodies = pool()
    texts = alone(bodies)
    with ours(EMBEDDED, "--context", "4096") as server:
        load_ = Mixed(server, bodies, texts)
        server.forget_peak()  # that of loading
        while load_.right + load_.wrong < MIXED_WARM:
            asyncio.run(_run(load_, min(30.0, 6 * MINUTES)))
        # Peaks are compared: between them the heap's free top comes and goes by several per cent.
        before = server.peak_bytes
        server.forget_peak()
        asyncio.run(_run(load_, 60 * MINUTES))
        growth = server.peak_bytes / before - 1
        counts = f"{load_.right} right, {load_.wrong} wrong {load_.first_wrong}"
        yield Outcome("texts", counts, "0 wrong", load_.wrong == 0)
        others = f"{load_.vanished} vanished, {load_.refused} refused"
        peak = f"peak of {before / 1e6:.0f} MB {growth:+.1%} in {MINUTES:g} minutes; {others}"
        yield Outcome("memory", peak, "at most +5 %", growth <= 0.05)
        free = settled(server)
        yield Outcome("slots", "all free" if free else "some taken", "all free", free)


LINES = [
    ("short", f"{SHORT} short requests leave memory flat and slots free", short),
    ("mixed", "a long mixed load with clients that vanish: every text is that of its run alone", mixed),
]
"""OUTPACE_MIXED_MINUTES sets how long `mixed` runs."""
