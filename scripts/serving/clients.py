"""Clients of an OpenAI-compatible server on one event loop, with nothing between them and the socket.

    python -m serving.clients < work.json > answers.json

work: {"host", "port", "clients", "bodies": [..], "stream"}: the clients take the bodies in turn until none is left.
answers: {"seconds", "answers": [{"text", "tokens", "prompt", "cached", "first", "seconds", "speed_up"}]}, in the
order of the bodies; prompt, cached: tokens of the prompt, and those that were not read anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter as clock
from typing import Any


async def ask(host: str, port: int, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to one request, on a connection of its own, with seconds to its first and last byte."""
    start = clock()
    reader, writer = await asyncio.open_connection(host, port)
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    try:
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if body.get("stream"):
            return await _streamed(reader, start, status)
        answer = await _whole(reader)
        first = clock() - start
        if status != 200:
            return {"error": answer, "status": status, "first": first, "seconds": first}
        return {**_said(answer), "status": status, "first": first, "seconds": clock() - start}
    finally:
        writer.close()


async def _whole(reader: asyncio.StreamReader) -> dict[str, Any]:
    content = await reader.read()
    found: dict[str, Any] = json.loads(content[content.index(b"{") : content.rindex(b"}") + 1])
    return found


async def _streamed(reader: asyncio.StreamReader, start: float, status: int) -> dict[str, Any]:
    texts, usage, first = [], None, 0.0
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            return {"error": event, "status": status, "first": first, "seconds": clock() - start}
        for choice in event["choices"]:
            delta = choice["delta"].get("content")
            if delta:
                first = first or clock() - start
                texts.append(delta)
        usage = event.get("usage") or usage
    tokens = usage["completion_tokens"] if usage else None
    return {"text": "".join(texts), "tokens": tokens, "status": status, "first": first, "seconds": clock() - start}


def _said(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": answer["choices"][0]["message"]["content"],
        "tokens": answer["usage"]["completion_tokens"],
        "prompt": answer["usage"]["prompt_tokens"],
        "cached": (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        "speed_up": (answer.get("speculation") or {}).get("speed_up"),
    }


async def run(work: dict[str, Any]) -> dict[str, Any]:
    """Returns the answers to all bodies."""
    answers: list[Any] = [None] * len(work["bodies"])
    left = iter(enumerate(work["bodies"]))

    async def client() -> None:
        for i, body in left:
            answers[i] = await ask(work["host"], work["port"], body)

    start = clock()
    await asyncio.gather(*(client() for _ in range(work["clients"])))
    return {"seconds": clock() - start, "answers": answers}


if __name__ == "__main__":
    json.dump(asyncio.run(run(json.load(sys.stdin))), sys.stdout)
