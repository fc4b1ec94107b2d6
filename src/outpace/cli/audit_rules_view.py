"""The audit of the rules in a terminal: laws, accepted tokens, mutants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.cli import console
from outpace.cli.audit_view import table

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.audit.rules import RulesReport


def show(report: RulesReport) -> None:
    """Writes the report."""
    out = console.stdout()
    out.print(_laws(report))
    out.print("\nDraft tokens accepted a step, exact means; a step commits one more.")
    out.print(_accepted(report))
    out.print()
    out.print(_mutants(report))
    out.print()
    for fault in report.faults:
        out.print(f"fault: {fault}", style="red", soft_wrap=True)
    cases = sum(check.cases for check in report.rules)
    killed = sum(check.killed for check in report.mutants)
    verdict = "all holds" if report.holds else f"{len(report.faults)} faults"
    out.print(
        f"{verdict}: {len(report.rules)} rules in {cases} cases, {killed} of {len(report.mutants)} mutants seen, "
        f"{report.seconds:.1f} s",
        soft_wrap=True,
    )
    out.print(f"not covered here: {'; '.join(report.not_covered)}", style="dim", soft_wrap=True)


def _laws(report: RulesReport) -> Table:
    shown = table("rule", "kind", "cases", "largest deviation", "where", "")
    for check in report.rules:
        deviation = "0 (exact)" if check.deviation == 0 else f"{float(check.deviation):.4f}"
        kind = "lossless" if check.lossless else "lossy"
        verdict = "holds" if check.holds else "FAILS"
        if not check.lossless and check.holds:
            verdict = "not lossless, as named"
        shown.add_row(check.rule, kind, str(check.cases), deviation, check.at or "-", verdict)
    return shown


def _accepted(report: RulesReport) -> Table:
    names = ("coupled", "rejection", "block", "traversal")
    shown = table("draft", *names)
    for row in report.accepted:
        shown.add_row(row.case, *(_exact(row.mean[name]) if name in row.mean else "-" for name in names))
    return shown


def _exact(mean: object) -> str:
    text = str(mean)
    return text if len(text) <= len("10/9") else f"{float(mean):.4f}"  # type: ignore[arg-type]


def _mutants(report: RulesReport) -> Table:
    shown = table("mutant", "deviation", "", "what it does wrong", "must be killed by")
    for check in report.mutants:
        mutant = check.mutant
        verdict = "killed" if check.killed else "SURVIVES"
        shown.add_row(mutant.name, f"{float(check.deviation):.4f}", verdict, mutant.fault, mutant.killer)
    return shown
