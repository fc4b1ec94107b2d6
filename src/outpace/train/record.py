"""What a run leaves beside its result: the command, the versions, the seed and the hashes of what it read."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from outpace.errors import UsageError


def file_sha256(path: Path) -> str:
    """Returns the hash of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seed_faults(seed: int) -> list[str]:
    """Returns what is wrong with a seed, in a list: NumPy takes no negative one, and PyTorch none of more bits."""
    return [] if 0 <= seed < 1 << 63 else [f"seed must be in [0, 2^63), got {seed}"]


def run_record(command: Sequence[str], seed: int, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Returns the record of a run that starts now. inputs: name -> hash."""
    return {
        "command": list(command),
        "seed": seed,
        "inputs": dict(inputs),
        "versions": {name: found for name in ("outpace", "numpy", "torch") if (found := _version(name))},
        "machine": platform.machine(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields another name to write under; what was written takes the place of `path` unless an error comes."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Writes JSON in one step: who reads `path` never sees half of it."""
    with atomic(path) as unfinished:
        unfinished.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Returns the object of a file, or None where there is none. Raises UsageError when it holds something else."""
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON ({error}); remove it to start again") from None
    if not isinstance(record, dict):
        raise UsageError(f"{path}: not a JSON object; remove it to start again")
    return record
