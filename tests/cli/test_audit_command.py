"""`outpace audit rules`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.audit import rules as audit
from outpace.audit.cases import CASES
from outpace.audit.mutants import MUTANTS
from outpace.cli.app import app


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CASES", CASES[:3])
    monkeypatch.setattr(audit, "MUTANTS", MUTANTS[:4])


def test_the_tables_say_what_was_proved_and_what_was_not() -> None:
    result = CliRunner().invoke(app, ["audit", "rules"])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    assert next(line for line in lines if line[:1] == ["block"])[1:] == [
        "lossless",
        "30",
        "0",
        "(exact)",
        "-",
        "holds",
    ]
    assert next(line for line in lines if line[:4] == ["toy,", "chain", "of", "2"])[5:7] == ["10/9", "11/9"]
    assert "not lossless, as named" in result.stdout
    assert "all holds: 7 rules in" in result.stdout
    assert "4 of 4 mutants seen" in result.stdout
    assert "not covered here: " in result.stdout


def test_json_is_one_object() -> None:
    record = json.loads(CliRunner().invoke(app, ["audit", "rules", "--json"]).stdout)
    assert record["holds"] is True
    assert record.keys() == {"holds", "faults", "not_covered", "seconds", "rules", "accepted", "mutants"}


def test_a_mutant_that_survives_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LEAST_DEVIATION", 1)
    result = CliRunner().invoke(app, ["audit", "rules"])
    assert result.exit_code == 1
    assert "SURVIVES" in result.stdout
    assert "fault: mutant 'residual forgotten' survives enumeration, rejection on a chain" in result.stdout
    assert "4 faults" in result.stdout


def test_the_rules_have_a_page_too(tmp_path: Path) -> None:
    page = tmp_path / "rules.html"
    result = CliRunner().invoke(app, ["audit", "rules", "--json", "--html", str(page)])
    assert result.exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert "all that ran holds" in html
    assert "rejection 10/9, block 11/9" in html


def test_rules_that_time_ran_out_for_are_not_covered() -> None:
    result = CliRunner().invoke(app, ["audit", "rules", "--minutes", "0.0000001"])
    assert result.exit_code == 1
    assert "fault: nothing was checked" in result.stdout
    assert "rule block: time ran out" in result.stdout
    assert "4 of 4 mutants seen" in result.stdout
