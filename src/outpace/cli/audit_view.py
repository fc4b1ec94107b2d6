"""An audit's report in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outpace.cli import console

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.audit.report import Check, Report

FAILS, HOLDS, NOT_COVERED = "fails", "holds", "not covered"
LISTED = 6
"""Cases of a group that are named in one line."""


def show(report: Report) -> None:
    """Writes the report: what was tried, the mutants, the faults, the verdict, and what was not covered."""
    out = console.stdout()
    out.print(_facts(report))
    out.print()
    out.print(_groups(report))
    if report.controls:
        out.print()
        out.print(_controls(report))
    out.print()
    for fault in report.faults:
        out.print(f"fault: {fault}", style="red", soft_wrap=True)
    out.print(report.verdict(), style="green" if report.holds else "red", soft_wrap=True)
    for line in report.not_covered:
        out.print(f"not covered: {line}", style="dim", soft_wrap=True)


def groups(report: Report) -> Iterator[tuple[str, list[Check]]]:
    """Yields each group with its checks, in their order."""
    found: dict[str, list[Check]] = {}
    for check in report.checks:
        found.setdefault(check.group, []).append(check)
    yield from found.items()


def counts(checks: list[Check]) -> tuple[int, int, int]:
    """Returns how many hold, fail, and were not covered."""
    verdicts = [check.verdict for check in checks]
    return verdicts.count(HOLDS), verdicts.count(FAILS), verdicts.count(NOT_COVERED)


def _facts(report: Report) -> Table:
    shown = table("", "")
    shown.show_header = False
    for name, value in report.facts.items():
        shown.add_row(name, value)
    return shown


def _groups(report: Report) -> Table:
    shown = table("checked", "holds", "fails", "not covered", "seconds", "for example")
    for name, checks in groups(report):
        held, failed, left = counts(checks)
        seconds = sum(check.seconds for check in checks)
        worst = next((c for c in checks if c.verdict == FAILS), checks[-1])
        style = "red" if failed else None
        shown.add_row(
            name, str(held), str(failed), str(left), f"{seconds:.1f}", f"{worst.name}: {worst.evidence}", style=style
        )
    return shown


def _controls(report: Report) -> Table:
    shown = table("mutant", "", "what it does wrong", "must be killed by", "how it was seen")
    for control in report.controls:
        verdict = "killed" if control.killed else "SURVIVES"
        shown.add_row(control.name, verdict, control.fault, control.killer, control.evidence)
    return shown


def table(*titles: str) -> Table:
    """Returns an empty table with these headings; those of numbers stand at the right."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        made.add_column(title, justify="right" if title in ("holds", "fails", "not covered", "seconds") else "left")
    return made
