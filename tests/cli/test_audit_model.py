"""`outpace audit model` and `audit law`: the table, the record, the page, and the exit code."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outpace.audit import law
from outpace.audit import model as audit
from outpace.audit.report import Check, ControlCheck, Report
from outpace.cli.audit_html import page


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "controls", lambda subject, weaker: iter(()))


def test_the_table_shows_each_group_and_what_was_not_covered(run, quick):
    result = run("audit", "model", "m", "--quick", "--drafter", "ngram")
    assert result.exit_code == 0, result.stdout + result.stderr
    for word in ("greedy text", "cache length", "drafter state", "parameters", "all that ran holds", "not covered:"):
        assert word in result.stdout
    assert result.stderr == ""


def test_json_and_a_page_can_be_had_together(run, quick, tmp_path):
    file = tmp_path / "audit.html"
    result = run("audit", "model", "m", "--quick", "--drafter", "ngram", "--json", "--html", str(file))
    record = json.loads(result.stdout)
    assert (record["audit"], record["holds"]) == ("model", True)
    assert "What was not tested" in file.read_text(encoding="utf-8")


def test_an_audit_without_time_says_so_and_fails(run, quick):
    result = run("audit", "model", "m", "--quick", "--drafter", "ngram", "--minutes", "0.000001")
    assert result.exit_code == 1
    assert "fault: nothing was checked" in result.stdout
    assert "time ran out" in result.stdout


def test_the_law_is_tested_and_says_how(run, monkeypatch):
    monkeypatch.setattr(law, "_controls", lambda laws: iter(()))
    monkeypatch.setattr(law, "QUICK_LAW", replace(law.QUICK_LAW, n=60, live=20))
    result = run("audit", "law", "m", "--quick", "--drafter", "ngram")
    assert result.exit_code == 0, result.stdout + result.stderr
    for word in ("law of block", "chi-square", "level", "not covered: the law beyond the next three tokens"):
        assert word in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "minutes must be above 0"),
        (["--html", "page.txt"], "--html writes a page, whose name ends in .html"),
        (["--drafter", "nonsense"], "unknown drafter 'nonsense'"),
    ],
)
def test_a_mistake_is_one_sentence(run, arguments, message):
    result = run("audit", "model", "m", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_page_escapes_what_it_shows_and_opens_what_fails():
    hostile = Report(
        "model",
        "<script>m</script>",
        (Check("a", "b", "holds", "c"), Check("d<b>", "e", "fails", "f\x1b[2J")),
        (ControlCheck("mutant", "f", "k", False, "e"),),
        ("nothing else",),
    )
    html = page(hostile)
    assert "<script>" not in html
    assert "\x1b" not in html
    assert html.count("<details open>") == 1
    assert "SURVIVES" in html
    assert "<li>mutant &#x27;mutant&#x27; survives k: e</li>" in html
    assert "http" not in html.replace("http-equiv", "")
