"""Throughput against llama.cpp's server, in one run: `accept.py serve --llama-server PATH`, or OUTPACE_LLAMA_SERVER.

docs/performance.md says how it is built.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from acceptance import NotRun, Outcome
from first_light.common import DRAFT, EMBEDDED, TARGET, file_of

from serving.load import bodies
from serving.servers import Server, free_port, ours, started

CONTEXT = 1024
REPEATS, TOKENS = 3, 96


def program() -> str:
    """Returns llama.cpp's server. Raises NotRun where none is named."""
    path = os.environ.get("OUTPACE_LLAMA_SERVER", "")
    if not Path(path).is_file():
        raise NotRun("needs llama.cpp's server: --llama-server PATH (docs/performance.md says how it is built)")
    return path


@contextmanager
def llama(file: Path, slots: int, *options: str) -> Iterator[Server]:
    """Runs llama.cpp's server on two threads.

    Each server keeps prompts as it does by default. Theirs: those of its slots, and up to 8 GiB of others beside them
    (`--cache-ram`). Ours: in what open requests leave of sixteen contexts, or of half of the free memory.
    """
    port = free_port()
    command = [program(), "--model", str(file), "--port", str(port), "--parallel", str(slots), "--threads", "2"]
    command += ["--ctx-size", str(CONTEXT * slots), *options]
    with started(command, port, file.stem, "/health") as server:
        yield server


@dataclass(frozen=True, slots=True)
class Measured:
    """The median tokens/s of a server, and the share of the prompts' tokens that it did not read anew."""

    rate: float
    cached: float


def measured(servers: dict[str, Server], clients: int, tokens: int) -> dict[str, Measured]:
    """Returns the figures of each server, asked in turn, after all prompts were asked once."""
    asked = [{**body, "ignore_eos": True} for body in bodies(max(8, 2 * clients), {}, tokens)]
    plain = [{name: value for name, value in body.items() if name != "speculation"} for body in asked]
    found: dict[str, list[Measured]] = {name: [] for name in servers}
    for repeat in range(REPEATS + 1):
        for name, server in servers.items():
            answered = server.load(clients, plain)
            if repeat:
                answers = answered["answers"]
                cached = sum(one["cached"] for one in answers) / sum(one["prompt"] for one in answers)
                found[name].append(Measured(sum(one["tokens"] for one in answers) / answered["seconds"], cached))
    return {
        name: Measured(statistics.median(one.rate for one in of), statistics.median(one.cached for one in of))
        for name, of in found.items()
    }


def outcome(what: str, by_server: dict[str, Measured], least: float) -> Outcome:
    ratio = by_server["ours"].rate / max(one.rate for name, one in by_server.items() if name != "ours")
    figures = ", ".join(f"{name} {one.rate:.0f}" for name, one in by_server.items())
    cached = ", ".join(f"{one.cached:.0%}" for one in by_server.values())
    figure = f"{ratio:.2f} ({figures} tokens/s; of the prompts cached {cached})"
    return Outcome(what, figure, f"at least {least:g}", ratio >= least)


def embedded() -> Iterator[Outcome]:
    program()
    file = file_of(EMBEDDED)
    with llama(file, 8) as theirs, ours(EMBEDDED, "--context", str(CONTEXT)) as mine:
        found = measured({"ours": mine, "llama.cpp": theirs}, 8, TOKENS)
        yield outcome("8 clients, embedded model", found, 3)


def pair() -> Iterator[Outcome]:
    program()
    file, small = file_of(TARGET), file_of(DRAFT)
    for clients, least in ((1, 1.4), (4, 2.0)):
        drafts: Sequence[str] = ("--model-draft", str(small), "--spec-type", "draft-simple")
        with ExitStack() as stack:
            servers = {
                "ours": stack.enter_context(ours(TARGET, "--draft", DRAFT, "--context", str(CONTEXT))),
                "llama.cpp": stack.enter_context(llama(file, clients)),
                "llama.cpp with a draft": stack.enter_context(llama(file, clients, *drafts)),
            }
            yield outcome(f"{clients} clients, 1.5B", measured(servers, clients, TOKENS // 2), least)


LINES = [
    ("llama", "three times the throughput of llama.cpp's server with 8 slots on the embedded model", embedded),
    ("llama-pair", "on the 1.5B at 1 and 4 clients 1.4 and 2 times the better of its modes", pair),
]
