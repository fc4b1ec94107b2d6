"""An audit's report: what did not run is never counted as holding."""

from __future__ import annotations

import json

import pytest

from outpace.audit import report as audit
from outpace.audit.report import Check, Control, ControlCheck, Finding, Minutes, NotCovered, Report, Task
from outpace.errors import UsageError


def quiet(what: str) -> None:
    pass


def passing() -> Finding:
    return Finding(True, "5 of 5")


def failing() -> Finding:
    return Finding(False, "4 of 5")


def absent() -> Finding:
    raise NotCovered("no such model here")


def broken() -> Finding:
    raise ZeroDivisionError("by zero")


def verdicts(report: Report) -> list[str]:
    return [check.verdict for check in report.checks]


def performed(*runs) -> Report:
    tasks = [Task("group", run.__name__, run) for run in runs]
    return Report("model", "m", audit.perform(tasks, Minutes(), quiet))


def test_a_check_that_raises_fails_and_the_others_go_on():
    report = performed(passing, broken, absent, failing)
    assert verdicts(report) == ["holds", "fails", "not covered", "fails"]
    assert report.faults == ("group, broken: ZeroDivisionError: by zero", "group, failing: 4 of 5")
    assert report.not_covered == ("group (absent): no such model here",)
    assert report.verdict().startswith("2 faults: 1 of 3 checks hold, 1 checks not covered")


def test_an_audit_that_checked_nothing_does_not_hold():
    assert performed(passing).holds
    assert performed(absent).faults == ("nothing was checked: every check was left out",)


def test_what_did_not_fit_into_the_minutes_is_not_covered_and_every_group_had_its_turn(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(audit, "clock", lambda: now[0])

    def slow() -> Finding:
        now[0] += 25
        return passing()

    tasks = [Task(group, str(i), slow) for group in "ab" for i in range(3)]
    checks = audit.perform(tasks, Minutes(1), quiet)
    assert [(c.group, c.name, c.verdict) for c in checks if c.verdict == "holds"] == [
        ("a", "0", "holds"),
        ("b", "0", "holds"),
    ]
    assert {c.evidence for c in checks if c.verdict == "not covered"} == {"time ran out"}
    assert Report("model", "m", checks).not_covered == ("a (1; 2): time ran out", "b (1; 2): time ran out")


@pytest.mark.parametrize("minutes", [0, -1, float("nan")])
def test_minutes_are_positive(minutes):
    with pytest.raises(UsageError, match="minutes must be above 0"):
        Minutes(minutes)


def test_a_mutant_is_dead_only_when_its_killer_found_the_fault():
    controls = [Control(run.__name__, "f", "k", run) for run in (failing, passing, broken, absent)]
    found = audit.try_controls(controls, quiet)
    assert [one.killed for one in found] == [True, False, False, False]
    report = Report("model", "m", (Check("g", "n", "holds", ""),), found)
    assert len(report.faults) == 3
    assert report.faults[0] == "mutant 'passing' survives k: 5 of 5"


def test_the_record_is_json():
    report = Report(
        "model", "m", (Check("g", "n", "holds", "e"),), (ControlCheck("c", "f", "k", True, "e"),), ("u",), {"a": "b"}
    )
    record = json.loads(json.dumps(report.record()))
    assert record["holds"] is True
    assert record["checks"] == [{"group": "g", "name": "n", "verdict": "holds", "evidence": "e", "seconds": 0.0}]
    assert record["mutants"][0]["killed"] is True
    assert (record["not_covered"], record["facts"]) == (["u"], {"a": "b"})
