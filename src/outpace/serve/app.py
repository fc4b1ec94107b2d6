"""The routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from outpace.errors import OutpaceError
from outpace.serve.errors import ApiError, ErrorBody, as_api_error
from outpace.serve.guard import Guard
from outpace.serve.job import CHUNK, PROMPT_READ, Event
from outpace.serve.metrics import CONTENT_TYPE
from outpace.serve.page import add_page
from outpace.serve.replies import Reply
from outpace.serve.schema import ChatRequest, CompletionRequest, Sampling, without_refused
from outpace.serve.service import Running, Service

Body = TypeVar("Body", bound=Sampling)

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "model": ErrorBody}
    for status, what in {
        400: "The request asks for what cannot be done",
        401: "The API key is missing or wrong",
        404: "No such model or path",
        413: "The body is too large",
        429: "The queue is full; Retry-After says when to come again",
        500: "The server failed",
        503: "The server is starting or shutting down",
        504: "The request took longer than the server allows",
    }.items()
}


def make_app(service: Service) -> FastAPI:
    """Returns the application; its lifespan starts and drains the scheduler, and so does `state.drain`."""

    async def drain() -> None:
        await run_in_threadpool(service.scheduler.stop, service.settings.grace_seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.scheduler.start()
        yield
        await drain()

    app = FastAPI(title="outpace", lifespan=lifespan, docs_url=None, redoc_url=None, responses=REFUSALS)
    app.state.drain = drain
    app.add_middleware(Guard, api_key=service.settings.api_key, body_bytes=service.settings.body_bytes)
    add_errors(app)
    _add_status(app, service)
    _add_completions(app, service)
    add_page(app, service)
    return app


def add_errors(app: FastAPI) -> None:
    """Makes every refusal OpenAI's error object."""

    @app.exception_handler(ApiError)
    @app.exception_handler(OutpaceError)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        return _error_response(as_api_error(error))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return _error_response(as_api_error(error))

    @app.exception_handler(HTTPException)
    async def no_route(_: Request, error: HTTPException) -> JSONResponse:
        return _error_response(ApiError(error.status_code, str(error.detail), headers=dict(error.headers or {})))


def _error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body(), status_code=error.status, headers=error.headers)


def _add_status(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether requests are taken: not while starting, draining, or after the engine has failed."""
        alive = service.scheduler.alive
        return JSONResponse({"status": "ready" if alive else "not ready"}, status_code=200 if alive else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return _model(service)

    @app.post("/v1/embeddings", include_in_schema=False)
    async def embeddings() -> None:
        raise ApiError(400, "this server generates text and makes no embeddings", code="unsupported_endpoint")


def _model(service: Service) -> dict[str, Any]:
    target = service.model.target
    return {
        "id": service.name,
        "object": "model",
        "created": 0,
        "owned_by": "outpace",
        "max_model_len": target.max_length,
        "engine": target.engine,
    }


def _add_completions(app: FastAPI, service: Service) -> None:
    def described(body: type[Sampling]) -> dict[str, Any]:
        schema = body.model_json_schema(ref_template=f"#/components/schemas/{body.__name__}-{{model}}")
        definitions = schema.pop("$defs", {})
        app.state.schemas.update({f"{body.__name__}-{name}": value for name, value in definitions.items()})
        answers: dict[str, Any] = {"application/json": {}, "text/event-stream": {}}
        return {
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": {"description": "The answer, or its chunks", "content": answers}},
        }

    app.state.schemas = {}

    @app.post("/v1/chat/completions", openapi_extra=described(ChatRequest))
    async def chat(request: Request) -> Response:
        asked = _parsed(await _json(request), ChatRequest)
        service.check_model(asked.model)
        openings = await service.open_chat(asked)
        reply = Reply(service.name, service.model.text, chat=True, traced=asked.traced, n=len(openings))
        return await _respond(asked, reply, service.run(openings, bool(asked.stream)), request)

    @app.post("/v1/completions", openapi_extra=described(CompletionRequest))
    async def complete(request: Request) -> Response:
        asked = _parsed(await _json(request), CompletionRequest)
        service.check_model(asked.model)
        openings = await service.open_text(asked)
        reply = Reply(service.name, service.model.text, chat=False, traced=asked.traced, n=asked.n or 1)
        return await _respond(asked, reply, service.run(openings, bool(asked.stream)), request)

    plain_schema = app.openapi

    def with_definitions() -> dict[str, Any]:
        schema = plain_schema()
        schema.setdefault("components", {}).setdefault("schemas", {}).update(app.state.schemas)
        return schema

    app.openapi = with_definitions  # type: ignore[method-assign]


async def _json(request: Request) -> dict[str, Any]:
    try:
        body = await request.body()
    except ClientDisconnect:  # nobody hears this, and nobody is to be told of a fault
        raise ApiError(400, "the client went away before its body had come") from None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body must be a JSON object, got {type(found).__name__}", code="invalid_json")
    return found


def _parsed(body: dict[str, Any], kind: type[Body]) -> Body:
    try:
        return kind.model_validate(without_refused(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or None
        if first["type"] == "extra_forbidden":
            message = f"{place} is not a parameter of this endpoint"
        elif first["type"] == "missing":
            message = f"{place} is missing"
        else:
            message = f"{place or 'the body'}: {first['msg']}, got {first.get('input')!r:.80}"
        raise ApiError(400, message, param=place and place.split(".")[0], code="invalid_value") from None


async def _respond(asked: Sampling, reply: Reply, running: Running, request: Request) -> Response:
    watch = asyncio.create_task(_close_when_gone(request, running))
    running.watch = watch  # a task that nothing refers to may vanish
    try:
        if not asked.stream:
            async for _ in running:
                pass
            return JSONResponse(reply.whole(running.results, running.figures))
        # The first event is awaited here, so that what goes wrong before it is an error with a status.
        events = aiter(running)
        first = await anext(events)
    except BaseException:
        running.close()
        raise
    wants_usage = bool(asked.stream_options and asked.stream_options.include_usage)
    body = _stream(reply, running, first, events, wants_usage)
    return StreamingResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _close_when_gone(request: Request, running: Running) -> None:
    """Closes what runs when the client has gone; the body was read, so nothing else can come from it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    running.close()


async def _stream(
    reply: Reply, running: Running, first: Event, events: AsyncIterator[Event], wants_usage: bool
) -> AsyncIterator[bytes]:
    """Yields the server-sent events of a response."""
    try:
        made = _said(reply, first)
        if made is not None:
            yield _event(made)
        async for event in events:
            made = _said(reply, event)
            if made is not None:
                yield _event(made)
        if wants_usage:
            yield _event(reply.figures(running.results, running.figures))
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(as_api_error(error).body())
    finally:
        running.close()


def _said(reply: Reply, event: Event) -> dict[str, Any] | None:
    """Returns what a stream says of an event."""
    index = event.job.index
    if event.kind == PROMPT_READ:
        return reply.opening(index)
    if event.kind == CHUNK and event.chunk is not None:
        return reply.piece(index, event.chunk, event.plain_seconds)
    return reply.closing(index, event.result.finish) if event.result is not None else None


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
