"""The audits themselves: exact laws of the rules, texts and laws of the embedded model, a server's answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from acceptance import Outcome
from first_light.common import EMBEDDED, file_of
from serving import servers

import outpace
from outpace.audit.endpoint import audit_endpoint
from outpace.audit.law import audit_law
from outpace.audit.model import audit_model
from outpace.audit.report import Report
from outpace.audit.rules import audit_rules
from outpace.audit.server import connect

CONTEXT = 512
SERVER = Path(__file__).parents[2] / "tests" / "openai_server.py"
WRONG = {"late-rejection": "likeliest tokens", "zero-logprobs": "log-probabilities", "stop-missed": "stop strings"}


def rules() -> Iterator[Outcome]:
    report = audit_rules()
    for check in report.rules:
        bound = "0, exactly" if check.lossless else "above 0"
        yield Outcome(f"{check.rule}: largest deviation of {check.cases} cases", f"{float(check.deviation):.3g}",
                      bound, check.holds)  # fmt: skip
    killed = sum(check.killed for check in report.mutants)
    yield Outcome("mutants seen", f"{killed} of {len(report.mutants)}", "all", killed == len(report.mutants))
    yield Outcome("seconds", f"{report.seconds:.0f}", "under 120", report.seconds < 120)


def outcomes(report: Report) -> Iterator[Outcome]:
    """Yields what a report says: its checks by group, its mutants, its time."""
    for group in dict.fromkeys(check.group for check in report.checks):
        checks = [check for check in report.checks if check.group == group]
        held = sum(check.verdict == "holds" for check in checks)
        failed = next((check for check in checks if check.verdict == "fails"), None)
        figure = f"{held} of {len(checks)} hold" if failed is None else f"{failed.name}: {failed.evidence}"
        left = f"{len(checks) - held} not covered" if failed is None and held < len(checks) else ""
        yield Outcome(group, figure, "all", failed is None, left)
    killed = sum(control.killed for control in report.controls)
    yield Outcome("mutants seen", f"{killed} of {len(report.controls)}", "all", killed == len(report.controls))


def real() -> Iterator[Outcome]:
    file = file_of(EMBEDDED)
    with outpace.load(file, context=CONTEXT) as model:
        texts = audit_model(model, reload=lambda count: outpace.load(file, threads=count, context=CONTEXT))
        yield from outcomes(texts)
        laws = audit_law(model)
        yield from outcomes(laws)
    seconds = texts.seconds + laws.seconds
    yield Outcome("audit model and audit law, seconds", f"{texts.seconds:.0f} + {laws.seconds:.0f}", "under 600",
                  seconds < 600)  # fmt: skip


def endpoint() -> Iterator[Outcome]:
    for fault in (None, *WRONG):
        command = [sys.executable, str(SERVER), str(file_of(EMBEDDED)), *(["--fault", fault] if fault else [])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            report = audit_endpoint(connect(f"http://127.0.0.1:{int(process.stdout.readline())}"))
            process.stdin.close()
        if fault is None:
            yield Outcome("a faithful server", report.verdict(), "passes", report.holds)
            continue
        named = [line for line in report.faults if line.startswith(WRONG[fault])]
        yield Outcome(fault, named[0] if named else report.verdict(), "named", bool(named))


def served() -> Iterator[Outcome]:
    """Our own server with its default drafts, beside itself without."""
    with servers.ours(str(file_of(EMBEDDED))) as server:
        url = f"http://127.0.0.1:{server.port}"
        report = audit_endpoint(connect(url), connect(url, fields={"speculation": {"off": True}}))
    yield from outcomes(report)


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("audit-rules", "the exact law of every rule, and its mutants", rules),
    ("audit", "embedded model: texts and laws under every registered drafter and rule, and their mutants", real),
    ("audit-serve", "outpace serve passes the audit of an endpoint, beside itself without drafts", served),
    ("audit-endpoint", "a faithful server passes, each wrong one is named", endpoint),
]
