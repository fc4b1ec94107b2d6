"""`outpace audit`: checks that anyone can run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from outpace.cli import console, options

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.audit.rules import RulesReport

FAILED = 1


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Prove that the text is the model's own.")
    group.command("rules")(rules)
    app.add_typer(group, name="audit")


def rules(as_json: options.Json = False) -> None:
    """Enumerate the exact law of every rule, in rational arithmetic and without a model.

    Small vocabularies, chains and trees, every outcome of the randomness: a lossless rule must have exactly the
    target's law, a lossy one must be seen to have another, and each of the broken rules kept for the purpose must be
    seen to be broken. Exit code 0 only when all of it holds.
    """
    from outpace.audit.rules import audit_rules

    watched = sys.stderr.isatty()
    report = audit_rules(_progress if watched else lambda what: None)
    if watched:
        sys.stderr.write("\r\x1b[K")
    if as_json:
        console.print_json(report.record())
    else:
        _show(report)
    if not report.holds:
        raise typer.Exit(FAILED)


def _progress(what: str) -> None:
    sys.stderr.write(f"\r\x1b[K{what} ...")
    sys.stderr.flush()


def _show(report: RulesReport) -> None:
    from outpace.audit.rules import NOT_COVERED

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
    out.print(f"not covered here: {'; '.join(NOT_COVERED)}", style="dim", soft_wrap=True)


def _laws(report: RulesReport) -> Table:
    table = _table("rule", "kind", "cases", "largest deviation", "where", "")
    for check in report.rules:
        deviation = "0 (exact)" if check.deviation == 0 else f"{float(check.deviation):.4f}"
        kind = "lossless" if check.lossless else "lossy"
        verdict = "holds" if check.holds else "FAILS"
        if not check.lossless and check.holds:
            verdict = "not lossless, as named"
        table.add_row(check.rule, kind, str(check.cases), deviation, check.at or "-", verdict)
    return table


def _accepted(report: RulesReport) -> Table:
    names = ("coupled", "rejection", "block", "traversal")
    table = _table("draft", *names)
    for row in report.accepted:
        table.add_row(row.case, *(_exact(row.mean[name]) if name in row.mean else "-" for name in names))
    return table


def _exact(mean: object) -> str:
    text = str(mean)
    return text if len(text) <= len("10/9") else f"{float(mean):.4f}"  # type: ignore[arg-type]


def _mutants(report: RulesReport) -> Table:
    table = _table("mutant", "deviation", "", "what it does wrong", "must be killed by")
    for check in report.mutants:
        mutant = check.mutant
        verdict = "killed" if check.killed else "SURVIVES"
        table.add_row(mutant.name, f"{float(check.deviation):.4f}", verdict, mutant.fault, mutant.killer)
    return table


def _table(*titles: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title)
    return table
