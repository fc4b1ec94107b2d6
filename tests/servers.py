"""Servers for the tests: a process, and one that answers by a script."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from outpace.audit.server import Answer, Usage
from outpace.errors import OutpaceError

SCRIPT = Path(__file__).parent / "openai_server.py"


@contextmanager
def serving(model: Path, fault: str | None = None) -> Iterator[str]:
    """Yields the URL of a process of `openai_server.py`."""
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    command = [sys.executable, str(SCRIPT), str(model), *(["--fault", fault] if fault else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def let_go(pipe: IO[Any], seconds: float = 30) -> bool:
    """Whether all who held the other end of a pipe have ended by then."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0] and not os.read(pipe.fileno(), 65536):
            return True
    return False


@dataclass
class Scripted:
    """A server that answers as many tokens as it is asked for; each pass of it drafts 3 and accepts 2.

    ends: calls after which it is gone. pace: seconds of a token. usage: whether it says how many tokens came.
    """

    ends: int = 10_000
    pace: float = 2e-4
    usage: bool = True
    url: str = "http://scripted/v1"
    model: str = "scripted"
    calls: list[int] = field(default_factory=list)

    def ask(self, prompt: str, *, max_tokens: int, temperature: float) -> Answer:
        if len(self.calls) == self.ends:
            raise OutpaceError(f"{self.url} does not answer: ConnectionRefusedError")
        self.calls.append(max_tokens)
        time.sleep(self.pace * max_tokens)
        return Answer("text", "length", Usage(5, max_tokens, 5 + max_tokens) if self.usage else None)

    def metrics(self) -> str:
        n = sum(self.calls)
        counts = {"drafts": n, "draft_tokens": 3 * n, "accepted_tokens": 2 * n}
        lines = [f"vllm:spec_decode_num_{name}_total {value}" for name, value in counts.items()]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}} {n}' for place in range(2)
        ]
        return "\n".join(lines)
