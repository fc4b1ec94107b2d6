"""`outpace audit`: checks that anyone can run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.api import Model
    from outpace.audit.report import Report
    from outpace.audit.rules import RulesReport

FAILED = 1
CONTEXT = 512
"""Tokens of context that a model under audit is loaded with: checks fill it to its end."""

Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="N",
        show_default="as long as it takes",
        help="Stop after so many minutes; what did not fit is listed as not covered. Mutants are always tried.",
    ),
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        show_default="no page",
        help="Also write the report as one page that stands alone.",
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", show_default="the whole audit", help="A fixed subset, for continuous integration.")
]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="NAME", help="Audit this drafter only; may be repeated.", show_default="all"),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        show_default="the target drafts for itself",
        help="A smaller model of the same vocabulary that drafts.",
    ),
]
Audited = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The target: a catalogue name, a GGUF file, a folder with safetensors and config.json, or a Hub id.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Prove that the text is the model's own.")
    group.command("rules")(rules)
    group.command("model")(model)
    group.command("law")(law)
    app.add_typer(group, name="audit")


def model(
    target: Audited = options.EMBEDDED,
    drafter: Drafters = None,
    draft: DraftModel = None,
    minutes: Minutes = None,
    quick: Quick = False,
    threads: options.Threads = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Check on real prompts that no draft changes the text.

    Greedy and seeded text of every registered drafter, draft length, batch and thread count against plain decoding;
    cache lengths and contents after every round; a drafter's state against a fresh one; a target that drafts for
    itself; every sampling parameter at an extreme value; ends inside a block. Then the same checks on builds with one
    fault each, which they must see. Exit code 0 only when all that ran holds.
    """
    from outpace.audit.model import QUICK, audit_model
    from outpace.audit.report import Minutes

    time = Minutes(minutes)
    _ready(html)
    with _loaded(target, draft, threads) as loaded:
        report = audit_model(
            loaded,
            reload=lambda count: _loaded(target, draft, count),
            wanted=drafter or (),
            minutes=time,
            extent=QUICK if quick else None,
            progress=_watching(),
        )
    _end(report, as_json, html)


def law(
    target: Audited = options.EMBEDDED,
    drafter: Drafters = None,
    draft: DraftModel = None,
    minutes: Minutes = None,
    quick: Quick = False,
    threads: options.Threads = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Test the law of the next three tokens of the real loop against the target's exact law.

    Every lossless rule, on chains and trees that are often wrong and with every registered drafter; temperature 1,
    0.7 with top_p 0.9, top_k 20, min_p 0.1, and penalties. Pearson's chi-square with fixed seeds; number of texts,
    level and power are stated. Then the same test on loops with one fault each, which it must see. Exit code 0 only
    when all that ran holds.
    """
    from outpace.audit.law import QUICK_LAW, audit_law
    from outpace.audit.report import Minutes

    time = Minutes(minutes)
    _ready(html)
    with _loaded(target, draft, threads) as loaded:
        report = audit_law(
            loaded,
            wanted=drafter or (),
            minutes=time,
            extent=QUICK_LAW if quick else None,
            progress=_watching(),
        )
    _end(report, as_json, html)


def _loaded(target: str, draft: str | None, threads: int | None) -> Model:
    return options.load_model(target, draft=draft, threads=threads, context=CONTEXT)


def _ready(html: str | None) -> None:
    from outpace.cli import audit_html

    if html is not None:
        audit_html.check_name(html)


def _end(report: Report, as_json: bool, html: str | None) -> None:
    """Shows a report in the forms that were asked for; exit code FAILED unless it holds."""
    from outpace.cli import audit_html, audit_view

    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if html is not None:
        audit_html.write(html, report)
        console.note(f"report written to {html}")
    if as_json:
        console.print_json(report.record())
    else:
        audit_view.show(report)
    if not report.holds:
        raise typer.Exit(FAILED)


def _watching() -> Callable[[str], None]:
    """Returns what tells a person at a terminal what comes next, and nobody else."""
    return _progress if sys.stderr.isatty() else lambda what: None


def rules(as_json: options.Json = False) -> None:
    """Enumerate the exact law of every rule, in rational arithmetic and without a model.

    Small vocabularies, chains and trees, every outcome of the randomness: a lossless rule must have exactly the
    target's law, a lossy one must be seen to have another, and each of the broken rules kept for the purpose must be
    seen to be broken. Exit code 0 only when all of it holds.
    """
    from outpace.audit.rules import audit_rules

    report = audit_rules(_watching())
    if sys.stderr.isatty():
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
