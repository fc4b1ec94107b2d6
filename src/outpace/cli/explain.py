"""`outpace explain`: speculative sampling on two small laws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.explain import Explanation

P_LAW = "0.50,0.25,0.15,0.08,0.02"
Q_LAW = "0.30,0.40,0.10,0.15,0.05"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain")(explain)


def explain(
    p: Annotated[
        str, typer.Option("--p", metavar="P1,P2,..", help="The target's law: a probability a token.")
    ] = P_LAW,
    q: Annotated[str, typer.Option("--q", metavar="Q1,Q2,..", help="The draft's law over the same tokens.")] = Q_LAW,
    rule: Annotated[
        str,
        typer.Option(
            "--rule", metavar="NAME", help="`rejection`, the papers' rule, or `coupled`, which compares two draws."
        ),
    ] = "rejection",
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="Rounds to show in full.")] = 3,
    draft_length: Annotated[
        int, typer.Option("--draft-length", metavar="N", help="Guesses in each of those rounds.")
    ] = 2,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", help="Rounds to sample for the frequencies.")
    ] = 20_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same figures.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Show why speculation keeps the target's law, on two small laws and without a model.

    A guess x is drawn from the draft's law q and accepted with probability min(1, p/q), else the token is drawn from
    the residual norm(max(0, p - q)). So each token comes out as an accepted guess with probability min(p, q) and as
    a correction with probability p - min(p, q): together p, whatever q is. The table shows both beside what
    sampling the real rule gave.
    """
    from outpace.explain import explain as explanation_of

    found = explanation_of(
        _numbers("p", p),
        _numbers("q", q),
        rule=rule,
        samples=samples,
        seed=seed,
        rounds=rounds,
        draft_length=draft_length,
    )
    if as_json:
        console.print_json(found.record())
    else:
        _show(found)


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{name} must be probabilities between commas, as 0.5,0.3,0.2, got {text!r}") from None


def _show(found: Explanation) -> None:
    from outpace.cli.trace import render

    out = console.stdout()
    names = [row.name for row in found.rows]
    for one in found.rounds:
        for line in render(one, names.__getitem__):
            out.print(line, soft_wrap=True)
        out.print()
    out.print(_table(found))
    out.print(
        f"\nOne guess, rule {found.rule}: accepted with probability {found.total.accepted:.4f}, "
        f"in {found.samples:,} sampled rounds {found.total.sampled_accepted:.4f}."
    )
    out.print(
        f"Largest distance of a sampled frequency from p: {found.largest_error:.4f}; "
        f"one standard error is at most {found.standard_error:.4f}."
    )


def _table(found: Explanation) -> Table:
    from rich.table import Table

    exact = ("\nmin(p,q)", "\np-min") if found.rule == "rejection" else ("both\ndraw it", "target\nalone")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("\ntoken", no_wrap=True)
    for title in ("\np", "\nq", *exact, "\nsum=p", "\nresidual", "sampled\naccepted", "\ncorrected", "\nsum"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in (*found.rows, found.total):
        figures = (row.p, row.q, row.accepted, row.corrected, row.emitted, row.residual)
        sampled = (row.sampled_accepted, row.sampled_corrected, row.sampled)
        style = "bold" if row is found.total else None
        table.add_row(row.name, *(f"{value:.4f}" for value in (*figures, *sampled)), style=style)
    return table
