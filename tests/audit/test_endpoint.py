"""`audit endpoint` against a real server process: the faithful one passes, each wrong one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import serving
from typer.testing import CliRunner

from outpace.audit import endpoint
from outpace.audit.endpoint import EndpointExtent, audit_endpoint
from outpace.audit.prompts import TEXTS
from outpace.audit.report import FAILS, HOLDS, Report
from outpace.audit.server import connect
from outpace.cli.app import app

SMALL = EndpointExtent(TEXTS[:2], 24, 80)


def groups(report: Report, verdict: str) -> set[str]:
    return {check.group for check in report.checks if check.verdict == verdict}


@pytest.fixture(scope="module")
def faithful(tiny_llama: Path) -> Iterator[str]:
    with serving(tiny_llama) as url:
        yield url


def test_a_faithful_server_passes_and_every_doctored_answer_is_seen(faithful: str) -> None:
    report = audit_endpoint(connect(faithful), extent=SMALL)
    assert report.faults == ()
    assert groups(report, HOLDS) == {check.group for check in report.checks}
    assert [control.name for control in report.controls if not control.killed] == []
    assert len(report.controls) == 8


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("late-rejection", "likeliest tokens"),
        ("zero-logprobs", "log-probabilities"),
        ("stop-missed", "stop strings"),
    ],
)
def test_a_wrong_server_fails_and_its_fault_is_named(
    tiny_llama: Path, faithful: str, fault: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "FAULTS", ())  # the faithful server's test has them
    extent = EndpointExtent(TEXTS[:2], 24, 50)
    with serving(tiny_llama, fault) as url:
        report = audit_endpoint(connect(url), connect(faithful), extent=extent)
    assert not report.holds
    assert named in groups(report, FAILS)
    if fault == "late-rejection":
        assert "greedy text" in groups(report, FAILS)
        assert any(line.startswith("greedy text, prompt") and "a fault" in line for line in report.faults)
    if fault == "stop-missed":
        assert groups(report, FAILS) == {named}
        assert any("the stop string" in line and "was missed" in line for line in report.faults)
    if fault == "zero-logprobs":
        assert groups(report, FAILS) == {named}
        assert any("log-probabilities are 0.0" in line for line in report.faults)


def test_a_server_without_log_probabilities_is_not_covered_there(tiny_llama: Path) -> None:
    with serving(tiny_llama, "no-logprobs") as url:
        report = audit_endpoint(connect(url), extent=EndpointExtent(TEXTS[:1], 16, 50))
    assert report.faults == ()
    assert {"likeliest tokens", "log-probabilities", "sampled law"} & groups(report, HOLDS) == set()
    assert any("log-probabilities (prompt 0): the server refuses (400)" in line for line in report.not_covered)


def test_the_command_passes_a_faithful_server(faithful: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make: Callable[..., EndpointExtent] = lambda samples, rounding: EndpointExtent(TEXTS[:1], 8, 50, rounding)  # noqa: E731
    monkeypatch.setattr(endpoint, "EndpointExtent", make)
    monkeypatch.setattr(endpoint, "FAULTS", ())
    page = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["audit", "endpoint", faithful, "--rounding", "0.125", "--html", str(page)])
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "within 0.25 nats" in result.stdout
    assert "sampled law" in result.stdout
    assert faithful in page.read_text(encoding="utf-8")


@pytest.mark.embedded
def test_the_embedded_model_is_served_faithfully(embedded_model: Path) -> None:
    with serving(embedded_model) as url:
        report = audit_endpoint(connect(url), extent=EndpointExtent(TEXTS[:1], 16, 50))
    assert report.faults == ()
