"""Where a measurement comes from: machine, versions, commit, command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import outpace
from outpace.bench import machine


def provenance() -> dict[str, Any]:
    """Returns what a record carries so that somebody else can repeat it."""
    here, engine = machine.describe(), machine.engine()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["outpace", *sys.argv[1:]]),
        "commit": commit(),
        "processor": here.processor,
        "logical_cores": here.logical_cores,
        "physical_cores": here.physical_cores,
        "memory_bytes": here.memory_bytes,
        "kernel": None if engine is None else engine.chosen,
        "versions": machine.versions(),
    }


def commit() -> str | None:
    """Returns the commit of the source that runs, with a + where files differ from it; None for a package."""
    folder = Path(outpace.__file__).parent
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if head is None or _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
