"""A model's kernels beside their floors, and on request beside llama.cpp: from a name to the report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import cast

from outpace import models
from outpace.bench.kernels import PEER_CONTEXT, KernelReport, Work, measure
from outpace.bench.machine import NativeCeilings
from outpace.bench.peers import LlamaCpp
from outpace.errors import UsageError
from outpace.native.loading import load_native, open_weights
from outpace.types import Target


def bench_kernels(
    model: str | Path,
    *,
    threads: int | None = None,
    peers: bool = False,
    seconds: float = 20.0,
    progress: Callable[[float], None] = lambda fraction: None,
) -> KernelReport:
    """Returns the report of `measure` on a model: a catalogue name, a file or a folder.

    peers: llama.cpp runs on the same file with the same threads, interleaved. progress: told the fraction done.
    Raises MissingExtra without llama-cpp-python, UsageError for a model that llama.cpp cannot read, and what loading
    raises.
    """
    path = models.resolve(model)
    if peers and not path.is_file():
        raise UsageError(f"--peers needs a GGUF file, which is all that llama.cpp reads, got {path}")
    if peers:
        LlamaCpp.api()
    with closing(open_weights(path)) as file:
        work = Work.of(file)
        target = load_native(file, threads=threads)
    used = target.model.threads
    with LlamaCpp(path, threads=used, context=PEER_CONTEXT) if peers else nullcontext() as peer:
        return measure(
            cast(Target, target),
            work,
            NativeCeilings(used),
            kernel=target.model.kernel,
            threads=used,
            seconds=seconds,
            peer=peer,
            progress=progress,
        )
