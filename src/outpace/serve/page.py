"""The page at /: a chat that shows how its tokens came, a race, and the planner's charts. It needs no network."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from outpace.serve.errors import ApiError
from outpace.serve.service import Service

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = ("chat.css", "chat.js", "stream.js", "strip.js")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_POLICY_INLINE = _POLICY.replace("script-src 'self'", "script-src 'unsafe-inline'")


def add_page(app: FastAPI, service: Service) -> None:
    """Adds the routes of the page."""

    @app.get("/", include_in_schema=False)
    async def chat() -> Response:
        return _file("chat.html", _POLICY)

    @app.get("/plan", include_in_schema=False)
    async def plan() -> Response:
        return _file("plan.html", _POLICY_INLINE)

    @app.get("/web/server.json", include_in_schema=False)
    async def server() -> dict[str, Any]:
        names = await run_in_threadpool(service.drafters)
        return {"model": service.name, "engine": service.model.target.engine, "drafters": names}

    @app.get("/web/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in _FILES:
            raise ApiError(404, f"there is no {name!r:.40} here", code="not_found")
        return _file(name, _POLICY)


def _file(name: str, policy: str) -> Response:
    content = files("outpace.web").joinpath(name).read_bytes()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]], headers=headers)
