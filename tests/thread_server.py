"""A server on a thread, for the tests."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

import httpx

from outpace.api import Model
from outpace.serve.app import make_app
from outpace.serve.draining import DrainingServer
from outpace.serve.service import Service
from outpace.serve.settings import Settings


@dataclass
class Running:
    """A server on a thread: where it listens, and its parts."""

    url: str
    service: Service
    server: DrainingServer

    def post(self, path: str = "/v1/chat/completions", **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=120)


class OnThread:
    """Runs a service's application on a thread for the length of a with block."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.service = Service.of(model, settings)
        self.server = DrainingServer(make_app(self.service), settings, log_level="error")
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})

    def __enter__(self) -> Running:
        self.thread.start()
        until = time.monotonic() + 60
        while not self.server.started:
            assert self.thread.is_alive(), "the server ended before it had started"
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.01)
        return Running(f"http://127.0.0.1:{self.socket.getsockname()[1]}", self.service, self.server)

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
