"""What stands before the routes: the API key, and the size of bodies. Plain ASGI, so that streams pass untouched."""

from __future__ import annotations

import json
import secrets
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outpace.serve.errors import ApiError

OPEN_PATHS = ("/health", "/ready", "/", "/plan")
OPEN_FOLDER = "/web/"
"""What needs no key: the page asks for it."""

DRAINED = 8
"""Times the limit of a body that are read of one that is too large, so that its client hears of it; a larger one is
answered at once."""


class Guard:
    """Lets a request through, or answers it with OpenAI's error object."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, body_bytes: int) -> None:
        self._app = app
        self._key = None if api_key is None else f"Bearer {api_key}".encode()
        self._most = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            if refusal.status == 413 and b"expect" not in headers and _length(headers) <= DRAINED * self._most:
                await self._drain(receive)
            await _answer(refusal, send)
            return
        try:
            await self._app(scope, self._counted(receive), send)
        except ApiError as error:  # from a body without a stated length that turned out too long
            await _answer(error, send)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> ApiError | None:
        if self._key is not None and path not in OPEN_PATHS and not path.startswith(OPEN_FOLDER):
            given = headers.get(b"authorization", b"")
            if not secrets.compare_digest(given, self._key):
                return ApiError(
                    401, "the API key is missing or wrong", kind="authentication_error", code="invalid_api_key"
                )
        return self._too_large() if _length(headers) > self._most else None

    async def _drain(self, receive: Receive) -> None:
        """Drops what still comes of a body, up to some times the limit: a client that writes hears no answer."""
        dropped = 0
        while dropped <= DRAINED * self._most:
            message = await receive()
            dropped += len(message.get("body", b""))
            if not message.get("more_body"):
                return

    def _too_large(self) -> ApiError:
        return ApiError(
            413, f"the body is larger than {self._most} bytes, this server's limit", code="body_too_large"
        )

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._most:
                    if message.get("more_body"):
                        await self._drain(receive)
                    raise self._too_large()
            return message

        return counted


def _length(headers: dict[bytes, bytes]) -> int:
    """Returns the stated length of a body, 0 where none is."""
    length = headers.get(b"content-length", b"0")
    return int(length[:20]) if length.isdigit() else 0


async def _answer(error: ApiError, send: Send) -> None:
    body = json.dumps(error.body()).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
