"""A million damaged models, and a million damaged weights under sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from acceptance import NotRun, Outcome

ROOT = Path(__file__).parents[2]
COUNT = 1_000_000


def outcome(what: str, command: list[str]) -> Outcome:
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=16"}  # its 256 MB cost more than the checks
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    last = (done.stdout or done.stderr).strip().splitlines()
    return Outcome(what, last[0] if last else "said nothing", "no failure", done.returncode == 0)


def readers() -> Iterator[Outcome]:
    command = [sys.executable, str(ROOT / "scripts/fuzz_readers.py"), "--count", str(COUNT)]
    yield outcome("GGUF and safetensors readers", command)


def weights() -> Iterator[Outcome]:
    target = ROOT / "build/core-address/outpace_fuzz"
    if not target.exists():
        raise NotRun("the fuzz target is not built; scripts/core-tests.sh builds it")
    corpus = sorted(str(file) for file in (ROOT / "csrc/fuzz/corpus").iterdir())
    yield outcome("packing and products, address and undefined", [str(target), str(COUNT), "1", *corpus])


LINES = [
    ("damaged-models", "a damaged model is refused or read: soon, in little memory", readers),
    ("damaged-weights", "no bits of weights do harm", weights),
]
