"""`outpace bench run`, `report` and `compare` on a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    records = [{"id": i, "task": task, "prompt": f"{task} <b>{i}</b>"} for i in range(2) for task in ("qa", "code")]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return path


def test_a_run_is_kept_reported_and_compared(run: Callable[..., Any], prompts: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run.json")
    options = ["--prompts", str(prompts), "--max-tokens", "6", "--repeats", "1", "--out", out]
    done = run("bench", "run", *options)
    assert done.exit_code == 0, done.stderr
    assert "outpace auto: same tokens as plain decoding at 4 of 4 prompts, temperature 0, all repeats" in done.stdout
    assert "temperature 1, seeds from 1" in done.stdout
    assert "cold: outpace plain loads in" in done.stdout

    assert run("bench", "report", out).exit_code == 0
    page = (tmp_path / "run.html").read_text()
    assert "<svg" in page
    assert "outpace auto" in page
    assert "<script" not in page
    assert "src=" not in page

    compared = run("bench", "compare", out, out, "--json")
    assert compared.exit_code == 0, compared.stderr
    assert {change["verdict"] for change in json.loads(compared.stdout)["changes"]} == {"no change shown"}


def test_json_has_the_record_and_its_summary(run: Callable[..., Any], prompts: Path) -> None:
    done = run(
        *("bench", "run", "--prompts", str(prompts), "--task", "qa", "--per-task", "1", "--max-tokens", "4"),
        *("--repeats", "1", "--drafter", "ngram", "--draft-length", "2", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert [question["task"] for question in record["questions"]] == ["qa"]
    assert {line["contender"] for line in record["summary"]} == {"outpace plain", "outpace ngram 2"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "poems"], "no prompt is of task 'poems'; the files have qa, code"),
        (["--per-task", "0"], "at least 1, got 0"),
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--max-tokens", "1"], "max_tokens must be at least 2, got 1"),
        (["--peers", "llama"], "unknown peer 'llama'; known: llama.cpp"),
        (["--drafter", "magic"], "unknown drafter 'magic'"),
        (["--max-tokens", "4000"], "the context holds 512"),
        (["--out", "/nowhere/run.json"], "there is no folder /nowhere"),
    ],
)
def test_a_mistake_is_one_line(run: Callable[..., Any], prompts: Path, options: list[str], said: str) -> None:
    done = run("bench", "run", "--prompts", str(prompts), *options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_ctrl_c_left_is_kept_and_shown_and_the_exit_is_130(
    run: Callable[..., Any], prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outpace.model import Model

    answer, asked = Model.stream, []

    def interrupted(*given: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) > 5:
            raise KeyboardInterrupt
        return answer(*given, **options)

    monkeypatch.setattr(Model, "stream", interrupted)
    out = tmp_path / "run.json"
    done = run("bench", "run", "--prompts", str(prompts), "--max-tokens", "8", "--repeats", "3", "--out", str(out))
    assert done.exit_code == 130
    assert "the run ended early: interrupted; these are the figures so far" in done.stdout
    assert json.loads(out.read_text())["ended"] == "interrupted"
    assert done.stderr == ""


def test_a_file_that_is_no_run_is_refused(run: Callable[..., Any], prompts: Path) -> None:
    done = run("bench", "report", str(prompts))
    assert done.exit_code == 2
    assert "is no record of outpace bench run" in done.stderr
