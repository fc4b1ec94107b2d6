"""`generate --explain` says what control expected and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

Run = Callable[..., Result]


@pytest.mark.parametrize("drafting", [[], ["--draft", "x.gguf", "--drafter", "model"]])
def test_explaining_says_what_was_expected_and_what_came_of_it(run: Run, drafting: list[str]) -> None:
    lines = run("generate", "ab abc", "--raw", "-n", "60", "--explain", *drafting).stderr.splitlines()[1:]
    assert [line.partition(":")[0] for line in lines if "length" not in line] == [
        *("control", "plain decoding", "expected", "realised")
    ]
    assert lines[-1].endswith("times plain")
    assert any(line.startswith("by draft length, times plain: 0: 1.00") for line in lines) == bool(drafting)


def test_explaining_has_no_figure_for_what_was_never_measured(run: Run) -> None:
    lines = run("generate", "ab abc", "--raw", "-n", "8", "--explain", "--no-speculation").stderr.splitlines()
    assert lines[1].startswith("control: none")
    assert lines[2] == "plain decoding: what a pass costs is not known here; --compare runs it"


def test_the_record_has_what_explaining_tells(run: Run) -> None:
    record = json.loads(run("generate", "ab abc", "--raw", "-n", "60", "--json").stdout)
    expected = record["expected"]
    assert expected["speedup"] == pytest.approx(expected["tokens"] / expected["cost"])
    assert record["speedup"] == pytest.approx(60 / record["seconds"]["decode"] * expected["plain_seconds"])
