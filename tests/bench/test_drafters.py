"""Drafters over task files: what is counted, and what ends the run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from outpace.bench.drafter_curves import judged_guesses, predicted_speedup, size_row
from outpace.bench.drafters import ALL, measure, read_prompts
from outpace.cli.app import app
from outpace.errors import OutpaceError, UsageError
from outpace.theory.costs import StepCosts, flat
from outpace.theory.speedup import improvement


@pytest.fixture
def run(tiny_llama, monkeypatch):
    """Runs a command line on the tiny model."""
    monkeypatch.setattr("outpace.models.resolve", lambda name, **options: tiny_llama)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


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


def test_a_host_that_moves_within_a_prompt_leaves_the_speed_up(native, tasks, monkeypatch):
    real, calls = native.generate, []

    def timed(text, **options):
        calls.append(options["drafter"])
        true = 3.0 if options["drafter"] == "none" else 2.0
        # Half as long from the middle of the second of a prompt's three turns on.
        seconds = true if (len(calls) - 1) % 6 < 3 else true / 2
        result = real(text, **options)
        return replace(result, seconds=replace(result.seconds, decode=seconds))

    monkeypatch.setattr(native, "generate", timed)
    report = measure(native, read_prompts([tasks], 1), ["suffix"], max_tokens=4, repeats=3)
    assert len(calls) == 6 * 3
    for row in report.rows:
        assert (row.speedup, row.low, row.high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_drafter_that_changes_the_text_ends_the_run(native, tasks, monkeypatch):
    real = native.generate

    def spoilt(text, **options):
        return real(text if options["drafter"] == "none" else text + " b", **options)

    monkeypatch.setattr(native, "generate", spoilt)
    with pytest.raises(OutpaceError, match="drafter suffix changed the text of prompt 0"):
        measure(native, read_prompts([tasks], 1), ["suffix"], max_tokens=8, repeats=1)


def test_a_prompt_with_a_schema_is_answered_by_it(native, tmp_path):
    pytest.importorskip("llguidance", reason="the extra 'structured' is not installed")
    file = tmp_path / "json.jsonl"
    file.write_text(json.dumps({"task": "json", "prompt": "ab", "schema": {"enum": [12, 34]}}))
    [prompt] = read_prompts([file], 1)
    report = measure(native, [prompt], ["suffix"], max_tokens=8, repeats=1)
    assert [row.task for row in report.rows] == [ALL, "json"]
    assert native.generate(prompt.text, max_tokens=8, grammar=prompt.grammar).text in ("12", "34")


def test_guesses_after_the_first_wrong_one_were_not_tested(native):
    whole = native.generate("ab ab", max_tokens=20, drafter="model", draft_length=4)
    assert judged_guesses([whole]) == (whole.accepted, whole.accepted)  # it drafts for itself
    other = native.generate("ab ab", max_tokens=20, drafter="bigram", draft_length=4)
    accepted, tested = judged_guesses([other])
    wrong = sum(step.accepted < step.drafted for step in other.steps)
    assert accepted == other.accepted
    assert wrong - 1 <= tested - accepted <= wrong  # the last round may have been cut


def test_rounds_without_a_draft_are_plain_ones():
    step = StepCosts(flat(1.0), draft_seconds_per_token=0.1)
    assert predicted_speedup(0.8, 1.0, 4, step) == pytest.approx(improvement(0.8, 4, 0.1))
    assert predicted_speedup(0.8, 0.0, 4, step) == 1.0
    assert 1.0 < predicted_speedup(0.8, 0.5, 4, step) < predicted_speedup(0.8, 1.0, 4, step)


def test_a_draft_is_measured_at_the_length_that_it_should_be_best_with(native, tasks):
    row = size_row("itself", native, "model", read_prompts([tasks], 1), max_tokens=12)
    assert row.acceptance == 1.0
    assert row.ceiling == float("inf")
    assert row.cost > 0
    assert row.predicted >= 1.0  # no draft is a length, too
    assert row.length > 0 or (row.predicted, row.measured) == (1.0, 1.0)


def test_the_command_prints_tables_and_writes_every_picture(run, tasks, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    monkeypatch.setattr("outpace.bench.drafter_curves.TEMPERATURES", (0.0, 1.0))
    monkeypatch.setattr("outpace.bench.drafter_curves.LENGTHS", (1, 3))
    asked = ("--drafter", "suffix", "--per-task", "1", "--repeats", "1", "--max-tokens", "6")
    more = ("--curves", "--sizes", "bigram", "--plots", str(tmp_path / "pictures"))
    result = run("bench", "drafters", "--prompts", str(tasks), *asked, *more)
    assert result.exit_code == 0, result.output
    assert "drafts by size" in result.stdout
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [file.stem for file in pictures] == [
        *("acceptance-by-position", "acceptance-by-temperature"),
        *("speedup-by-length", "speedup-by-size", "speedup-by-task"),
    ]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in pictures)
    record = json.loads(run("bench", "drafters", "--prompts", str(tasks), *asked, "--curves", "--json").stdout)
    assert [point["temperature"] for point in record["temperatures"]] == [0.0, 1.0]
    assert [point["length"] for point in record["lengths"]] == [1, 3]
