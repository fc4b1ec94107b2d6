"""`outpace tune` on a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_PROFILES", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "hello there"}\n{"prompt": "one two"}\n')
    return path


def test_settings_are_predicted_measured_and_saved(run: Callable[..., Any], prompts: Path, folder: Path) -> None:
    options = ("--prompts", str(prompts), "--max-tokens", "16", "--lengths", "1,2", "--repeats", "1")
    done = run("tune", *options, "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert [(s["drafter"], s["draft_length"]) for s in record["settings"]] == [("ngram", 1), ("ngram", 2)]
    assert all(s["measured"]["value"] > 0 for s in record["settings"])
    assert Path(record["saved"]).parent == folder
    words = run("tune", *options, "--no-check", "--no-save")
    assert words.exit_code == 0, words.stderr
    assert "recommended: " in words.stdout
    assert "a round of one row takes" in words.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lengths", "3,1"], "--lengths must be rising numbers in [1, 15]"),
        (["--lengths", "x"], "--lengths must be rising numbers in [1, 15]"),
        (["--max-tokens", "4"], "max_tokens must be at least 16, got 4"),
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--temperature", "0"], "temperature must be in (0, 10], got 0"),
        (["--prompts", "/nowhere.jsonl"], "No such file"),
        (["--per-task", "1"], "--per-task chooses from --prompts FILE: name one, or leave it out"),
    ],
)
def test_a_mistake_is_one_line(run: Callable[..., Any], options: list[str], said: str) -> None:
    done = run("tune", *options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
