"""`outpace audit rules`."""

from __future__ import annotations

import json

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
