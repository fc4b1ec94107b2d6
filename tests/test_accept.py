"""The acceptance script: what cannot be measured here is said, and fails nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts/accept.py"


def accept(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "OUTPACE_MODELS": str(tmp_path)}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)


def test_a_line_without_its_model_is_not_run(tmp_path: Path) -> None:
    done = accept(tmp_path, "first-light", "--only", "pair-bits", "pair-loading")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not run") == 2
    assert "outpace models pull qwen2.5-coder-1.5b" in done.stdout
    assert "0 passed, 0 failed" in done.stdout


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    done = accept(tmp_path, "nonsense")
    assert done.returncode == 2
    assert "first-light" in done.stderr
