"""uvicorn's server, whose open requests hear why they end when the grace is over."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from outpace.serve.settings import Settings

LAST_WORDS_SECONDS = 2
"""For what was said at the end of the grace to be sent, before uvicorn cuts whoever has not read it."""


class DrainingServer(uvicorn.Server):
    """Serves an application that `make_app` or `make_proxy` made.

    uvicorn alone cancels what still runs and answers a bare 500, or leaves off in the middle of a stream; the
    application's `state.drain` ends those requests before that, each with an error of its own.
    """

    def __init__(self, app: FastAPI, settings: Settings, *, log_level: str = "warning") -> None:
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_level=log_level,
            access_log=False,
            timeout_graceful_shutdown=round(settings.grace_seconds) + LAST_WORDS_SECONDS,
            server_header=False,
        )
        super().__init__(config)
        self._drain = app.state.drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.create_task(self._drain())
        try:
            await super().shutdown(sockets)
        finally:
            draining.cancel()
