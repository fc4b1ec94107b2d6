"""`outpace explain`."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from outpace.cli.app import app

SMALL = ["--samples", "400"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["explain", *SMALL, *arguments])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_the_table_holds_overlap_residual_and_their_sum() -> None:
    lines = run("--rounds", "0").splitlines()
    assert lines[1].split()[:7] == ["token", "p", "q", "min(p,q)", "p-min", "sum=p", "residual"]
    assert lines[2].split()[:7] == ["a", "0.5000", "0.3000", "0.3000", "0.2000", "0.5000", "0.8000"]
    assert lines[7].split()[:7] == ["sum", "1.0000", "1.0000", "0.7500", "0.2500", "1.0000", "1.0000"]
    assert "rule rejection: accepted with probability 0.7500" in lines[9]


def test_rounds_show_p_q_and_r_and_what_became_of_each_guess() -> None:
    text = run("--rounds", "8", "--draft-length", "3")
    assert "✓" in text
    assert "✗" in text
    assert "r q < p" in text
    assert "residual norm(max(0, p - q)), mass 0.250" in text
    assert "correction" in text


def test_the_coupled_rule_shows_both_draws() -> None:
    text = run("--rule", "coupled")
    assert "drafter drew" in text
    assert "target drew" in text
    assert "alone" in text


def test_your_own_laws() -> None:
    record = json.loads(run("--p", "0.5,0.3,0.2", "--q", "0.2,0.3,0.5", "--json"))
    assert [round(row["residual"], 12) for row in record["rows"]] == [1, 0, 0]
    assert round(record["total"]["accepted"], 12) == 0.7


def test_json_is_one_object() -> None:
    record = json.loads(run("--json"))
    assert record.keys() == {
        "rule", "samples", "seed", "rows", "total", "standard_error", "largest_error", "rounds",
    }  # fmt: skip
