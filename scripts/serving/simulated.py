"""The simulated server against the real one: requests that arrive by chance, at loads from light to full."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter as clock
from typing import Any

from acceptance import Outcome
from first_light.common import EMBEDDED, file_of, load

from outpace.theory.serving import Traffic
from serving.clients import ask
from serving.servers import Server, ours

SHARES = (0.3, 0.6, 0.9)
"""Of the requests a second that plain decoding can do with every slot taken."""

REQUESTS, NUMBERS, TOKENS = 40, 30, 48


def messages(i: int) -> list[dict[str, str]]:
    """Returns the prompt of a request; each begins otherwise, so that none is a prefix that is cached."""
    numbers = " ".join(str((i * 31 + k * 7) % 1000) for k in range(NUMBERS))
    return [{"role": "user", "content": f"{i} {numbers}"}]


def predicted(rates: Sequence[float]) -> list[dict[str, Any]]:
    """Returns the reports of plain decoding by `outpace simulate`; without rates those that it chooses."""
    command = [sys.executable, "-m", "outpace", "simulate", "--model", EMBEDDED, "--json"]
    text = load(EMBEDDED).text
    tokens = statistics.median(len(text.render_chat(messages(i))) for i in range(REQUESTS))
    command += ["--requests", str(REQUESTS), "--output-tokens", str(TOKENS), "--prompt-tokens", str(int(tokens))]
    for rate in rates:
        command += ["--rate", str(rate)]
    record = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [one for one in record["loads"] if one["mode"] == "plain"]


async def _measure(server: Server, rate: float) -> tuple[float, float]:
    """Returns (median seconds of a request, tokens/s of all) for the arrivals that the simulation has."""
    arrivals = Traffic(rate, REQUESTS, output_tokens=TOKENS).arrivals()
    start = clock()

    async def one(i: int, second: float, tokens: int) -> dict[str, Any]:
        body = {
            "model": server.model,
            "messages": messages(i),
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "speculation": {"off": True},
        }
        await asyncio.sleep(max(0.0, start + second - clock()))
        return await ask("127.0.0.1", server.port, body)

    answers = await asyncio.gather(*(one(i, second, tokens) for i, (second, tokens) in enumerate(arrivals)))
    whole = clock() - start - arrivals[0][0]
    seconds = sorted(answer["seconds"] for answer in answers)
    return seconds[len(seconds) // 2], sum(answer["tokens"] for answer in answers) / whole


def simulated() -> Iterator[Outcome]:
    file_of(EMBEDDED)
    most = predicted(())[-1]["rate"]
    rates = [share * most for share in SHARES]
    reports = predicted(rates)
    with ours(EMBEDDED, "--context", "1024") as server:
        asyncio.run(_measure(server, rates[0]))
        for share, rate, report in zip(SHARES, rates, reports, strict=True):
            latency, goodput = asyncio.run(_measure(server, rate))
            off = [report["latency"][0] / latency - 1, report["goodput"] / goodput - 1]
            figures = f"median {report['latency'][0]:.2f} s for {latency:.2f} ({off[0]:+.0%})"
            figures += f", {report['goodput']:.0f} tokens/s for {goodput:.0f} ({off[1]:+.0%})"
            good = abs(off[0]) <= 0.35 and abs(off[1]) <= 0.1
            yield Outcome(f"load {share:g}, {rate:.1f} requests/s", figures, "within 35 and 10 %", good)


LINES = [("simulate", "the simulated server comes near the real one, plain, by arrivals at three loads", simulated)]
