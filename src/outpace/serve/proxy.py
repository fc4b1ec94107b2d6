"""The routes before another engine: its API passed on as it is, our refusals, key, limits and counters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from outpace.serve.app import add_errors
from outpace.serve.errors import ApiError, as_api_error
from outpace.serve.guard import Guard
from outpace.serve.metrics import CONTENT_TYPE
from outpace.serve.settings import Settings
from outpace.serve.supervisor import Supervisor

SAME_NAMES = (
    "spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos", "prompt_tokens", "generation_tokens", "request_success",
    "num_requests_running", "num_requests_waiting", "time_to_first_token_seconds", "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
)  # fmt: skip
"""Counters of vLLM whose name and meaning are ours, too."""

OTHER_NAMES = {
    "inter_token_latency_seconds": "time_per_output_token_seconds",
    "prefix_cache_hits": "prompt_tokens_cached",
}
"""What vLLM calls otherwise."""

_COUNTER = re.compile(r"^(# (?:HELP|TYPE) )?vllm:(\w+?)((?:_total|_bucket|_sum|_count|_created)?)(?=[ {])")

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "server", "date"}
_PASSED_ON = {"content-type", "accept", "x-request-id"}


def translated(text: str) -> str:
    """Returns vLLM's exposition with our names where we count the same; its other counters stay as they are."""
    names = dict.fromkeys(SAME_NAMES) | OTHER_NAMES
    lines = []
    for line in text.splitlines():
        found = _COUNTER.match(line)
        if found and found[2] in names:
            comment, name, ending = found[1] or "", found[2], found[3]
            line = f"{comment}outpace:{names[name] or name}{ending}{line[found.end() :]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


class Front:
    """What stands before the engine, with its own counters."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        own = httpx.Timeout(None, connect=5)
        self.client = httpx.AsyncClient(base_url=supervisor.url, timeout=own, trust_env=False)
        self.registry = CollectorRegistry()
        self.answers = Counter("outpace:requests_passed_on", "Answers by status", ["status"], registry=self.registry)
        self.up = Gauge("outpace:engine_up", "Whether the engine answers", registry=self.registry)
        self.restarts = Gauge("outpace:engine_restarts", "Starts after the first", registry=self.registry)

    async def metrics(self) -> bytes:
        """Returns the engine's counters under our names, and ours."""
        self.up.set(self.supervisor.ready)
        self.restarts.set(self.supervisor.restarts)
        try:
            answer = await self.client.get("/metrics", timeout=5)
            theirs = translated(answer.text) if answer.status_code == 200 else ""
        except httpx.HTTPError:
            theirs = ""
        return theirs.encode() + generate_latest(self.registry)

    async def pass_on(self, path: str, request: Request) -> Response:
        """Returns the engine's answer. Raises ApiError where there is none."""
        if not self.supervisor.ready:
            raise ApiError(
                503, "the engine is starting", kind="server_error", code="starting", headers={"Retry-After": "5"}
            )
        headers = {name: value for name, value in request.headers.items() if name in _PASSED_ON}
        asked = self.client.build_request(
            request.method, path, params=request.query_params, content=await request.body(), headers=headers
        )
        answer = await self._sent(asked, request)
        self.answers.labels(str(answer.status_code)).inc()
        kept = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP}
        return StreamingResponse(_body(answer), answer.status_code, kept)

    async def _sent(self, asked: httpx.Request, request: Request) -> httpx.Response:
        """Returns the answer's head; an engine whose client has gone is told by the closed connection."""
        sending = asyncio.create_task(self.client.send(asked, stream=True))
        leaving = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ApiError(499, "the client has gone", code="client_gone")
            return await sending
        except httpx.HTTPError as error:
            message = f"the engine did not answer ({type(error).__name__})"
            raise ApiError(502, message, kind="server_error", code="engine_failed") from None
        finally:
            leaving.cancel()
            sending.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            raise
        lost = ApiError(
            502, "the engine ended in the middle of its answer", kind="server_error", code="engine_failed"
        )
        yield b"data: " + JSONResponse(as_api_error(lost).body()).body + b"\n\n"
    finally:
        await answer.aclose()


def make_proxy(supervisor: Supervisor, settings: Settings) -> FastAPI:
    """Returns the application; its lifespan starts and ends the engine, `state.drain` ends it after the grace."""

    async def drain() -> None:
        await asyncio.sleep(settings.grace_seconds)
        await supervisor.stop(settings.grace_seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        front = app.state.front = Front(supervisor)
        supervisor.start()
        yield
        await supervisor.stop(settings.grace_seconds)
        await front.client.aclose()

    app = FastAPI(title="outpace", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.drain = drain
    app.add_middleware(Guard, api_key=settings.api_key, body_bytes=settings.body_bytes)
    add_errors(app)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        state: dict[str, Any] = {"status": "ready" if supervisor.ready else "not ready"}
        state["restarts"] = supervisor.restarts
        return JSONResponse(state, status_code=200 if supervisor.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await app.state.front.metrics(), media_type=CONTENT_TYPE)

    @app.api_route("/v1/{path:path}", methods=["GET", "POST", "DELETE"])
    async def pass_on(path: str, request: Request) -> Response:
        answer: Response = await app.state.front.pass_on(f"/v1/{path}", request)
        return answer

    return app
