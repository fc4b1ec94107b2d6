"""Servers as processes of their own, ours and llama.cpp's, and their clients."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Server:
    """Where one listens, and its process."""

    port: int
    process: subprocess.Popen[bytes]
    model: str

    def load(self, clients: int, bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns what so many clients got, and in how many seconds; they run in a process of their own."""
        named = [{"model": self.model, **body} for body in bodies]
        work = {"host": "127.0.0.1", "port": self.port, "clients": clients, "bodies": named}
        done = subprocess.run(
            [sys.executable, "-m", "serving.clients"],
            input=json.dumps(work).encode(),
            capture_output=True,
            check=True,
            cwd=SCRIPTS,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def rate(self, clients: int, bodies: Sequence[dict[str, Any]]) -> float:
        """Returns the tokens/s of all clients together."""
        found = self.load(clients, bodies)
        return float(sum(answer["tokens"] for answer in found["answers"]) / found["seconds"])

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the server's process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak_bytes(self) -> int:
        """The most resident memory since the start, or since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)[1])  # type: ignore[index]

    def forget_peak(self) -> None:
        """Makes the memory of now the peak."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def started(command: Sequence[str], port: int, model: str, path: str) -> Iterator[Server]:
    """Runs a server until the block ends; it is there when `path` answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the server did not start: {' '.join(command)}") from None
                time.sleep(0.05)
        yield Server(port, process, model)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def ours(model: str, *options: str) -> Iterator[Server]:
    """Runs `outpace serve`."""
    port = free_port()
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--model", model]
    with started([*command, "--port", str(port), *options], port, model, "/ready") as server:
        yield server
