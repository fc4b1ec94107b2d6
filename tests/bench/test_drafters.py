"""Drafters over task files: what is counted, and what ends the run."""

from __future__ import annotations

import json

import pytest

from outpace.bench.drafters import ALL, measure, read_prompts
from outpace.errors import OutpaceError, UsageError


@pytest.fixture
def tasks(tmp_path):
    file = tmp_path / "tasks.jsonl"
    records = [
        {"task": "qa", "turns": ["ab"]},
        {"task": "qa", "turns": ["abc", "more"]},
        {"task": "multi_turn", "category": "writing", "turns": ["ab ab"]},
        {"task": "multi_turn", "category": "stem", "turns": ["abc ab"]},
    ]
    file.write_text("\n".join(map(json.dumps, records)))
    return file


def test_prompts_are_the_first_turns_and_hard_kinds_have_rows_of_their_own(tasks):
    found = read_prompts([tasks], 1)
    assert [(prompt.task, prompt.text) for prompt in found] == [
        ("qa", "ab"),
        ("multi_turn: writing", "ab ab"),
        ("multi_turn", "abc ab"),
    ]
    with pytest.raises(UsageError, match="must be at least 1, got 0"):
        read_prompts([tasks], 0)


@pytest.mark.parametrize("text", ["{", "[]", '{"task": "qa"}', '{"task": "qa", "turns": []}'])
def test_a_file_of_something_else_is_named(tmp_path, text):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(UsageError, match=r"x\.jsonl"):
        read_prompts([tmp_path / "x.jsonl"], 3)


def test_every_drafter_has_a_row_a_task_and_one_for_all(native, tasks):
    report = measure(native, read_prompts([tasks], 2), ["suffix", "mixture"], max_tokens=8, repeats=2)
    assert [(row.drafter, row.task) for row in report.rows if row.task == ALL] == [("suffix", ALL), ("mixture", ALL)]
    assert len(report.rows) == 2 * 4
    for row in report.rows:
        assert row.low <= row.speedup <= row.high
        assert row.tokens_per_step >= 1
        assert 0 <= row.draft_share + row.score_share <= 1
    assert json.dumps(report.record())


def test_a_drafter_that_changes_the_text_ends_the_run(native, tasks, monkeypatch):
    real = native.generate

    def spoilt(text, **options):
        return real(text if options["drafter"] == "none" else text + " b", **options)

    monkeypatch.setattr(native, "generate", spoilt)
    with pytest.raises(OutpaceError, match="drafter suffix changed the text of prompt 0"):
        measure(native, read_prompts([tasks], 1), ["suffix"], max_tokens=8, repeats=1)


def test_pictures_are_written(native, tasks, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    from outpace.bench.drafter_plots import plot

    report = measure(native, read_prompts([tasks], 1), ["suffix"], max_tokens=8, repeats=1)
    for file in plot(report, tmp_path / "pictures"):
        assert file.read_bytes().startswith(b"\x89PNG")
