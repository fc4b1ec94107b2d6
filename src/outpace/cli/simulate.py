"""`outpace simulate`: what a server would do under a load, with and without speculation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.cli.loading import load_model
from outpace.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.theory.serving import Machine, Report

LOAD, SERVER, DRAFTS = "Load", "Server", "Drafts"

POINTS = (1, 2, 4, 8, 16, 32, 64, 96, 128)
"""Rows at which a model's pass is measured."""

COMPANY = 8
"""Requests of a shared pass that is measured."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("simulate")(simulate)


def simulate(
    model: options.Model = options.EMBEDDED,
    threads: options.Threads = None,
    pass_ms: Annotated[
        list[str] | None,
        typer.Option(
            "--pass-ms",
            metavar="ROWS:MS",
            rich_help_panel=SERVER,
            show_default="measured on --model",
            help="Milliseconds of a pass over so many rows; repeat it, one row included. No model is loaded then.",
        ),
    ] = None,
    prefill: Annotated[
        float | None,
        typer.Option(
            "--prefill",
            metavar="TOKENS/S",
            rich_help_panel=SERVER,
            show_default="measured on --model",
            help="Speed at which prompts are read.",
        ),
    ] = None,
    slots: Annotated[
        int, typer.Option("--slots", metavar="N", rich_help_panel=SERVER, help="Requests that run at a time.")
    ] = 16,
    rates: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            metavar="X",
            rich_help_panel=LOAD,
            show_default="a quarter, half, three quarters and all of what plain decoding can do",
            help="Requests a second; repeat it for several loads.",
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", metavar="N", rich_help_panel=LOAD, help="Requests at each load.")
    ] = 500,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", metavar="N", rich_help_panel=LOAD, help="Tokens of a prompt.")
    ] = 128,
    output_tokens: Annotated[
        int,
        typer.Option("--output-tokens", metavar="N", rich_help_panel=LOAD, help="Tokens of an answer, the mean."),
    ] = 128,
    acceptance: Annotated[
        float, typer.Option("--acceptance", metavar="X", rich_help_panel=DRAFTS, help="Of one drafted token.")
    ] = 0.6,
    draft_length: Annotated[
        int | None,
        typer.Option(
            "--draft-length",
            metavar="N",
            rich_help_panel=DRAFTS,
            show_default="the best at the load of the moment",
            help="Tokens drafted a round.",
        ),
    ] = None,
    draft_ms: Annotated[
        float, typer.Option("--draft-ms", metavar="MS", rich_help_panel=DRAFTS, help="Of one pass of the drafter.")
    ] = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", rich_help_panel=LOAD, help="Of arrivals and lengths.")
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Predict latency and goodput of a server against load, with and without speculation.

    A model of `outpace serve`, event by event: requests arrive by chance, prompts are read in slices, those that run
    share passes. What a pass costs is measured here, or given for a machine that is not at hand.
    """
    from outpace.theory import checks
    from outpace.theory.serving import PLAIN, Speculation, Traffic
    from outpace.theory.serving import simulate as run

    checks.not_negative("--draft-ms", draft_ms, "milliseconds")
    machine = _machine(model, threads, pass_ms, prefill, slots)
    drafts = Speculation(draft_length, acceptance, draft_ms / 1e3)
    lines: list[tuple[float, str, Report]] = []
    for rate in rates or _rates(machine, prompt_tokens, output_tokens):
        traffic = Traffic(rate, requests, prompt_tokens, output_tokens, seed=seed)
        lines += [(rate, name, run(machine, traffic, how)) for name, how in (("plain", PLAIN), ("drafts", drafts))]
    if as_json:
        console.print_json(
            {"loads": [{"rate": rate, "mode": name, **asdict(report)} for rate, name, report in lines]}
        )
    else:
        console.stdout().print(_table(lines))


def _machine(
    model: str, threads: int | None, pass_ms: list[str] | None, prefill: float | None, slots: int
) -> Machine:
    from outpace.theory import costs
    from outpace.theory.serving import Machine

    apart = 0.0
    if pass_ms:
        if model != options.EMBEDDED or threads is not None:
            given = "--threads" if threads is not None else "--model"
            raise UsageError(f"--pass-ms stands for a model, and none is loaded: leave it or {given} out")
        points = [_point(text) for text in pass_ms]
        if prefill is None:
            raise UsageError("--pass-ms needs --prefill as well: no model is measured then")
    else:
        points, measured, apart = _measured(model, threads)
        prefill = prefill or measured
    rows, seconds = max(points)
    first = min(points)[1]
    slope = max(0.0, (seconds - first) / max(1, rows - 1)) if len(points) > 1 else 0.0
    inside = costs.measured(points)
    # Beyond the last point a row costs what it cost on average up to there.
    return Machine(
        lambda n: inside(n) if n <= rows else seconds + slope * (n - rows),
        prefill,
        slots=slots,
        request_seconds=apart,
    )


def _point(text: str) -> tuple[int, float]:
    from outpace.theory import checks

    rows, _, ms = text.partition(":")
    try:
        point = int(rows), float(ms)
    except ValueError:
        raise UsageError(f"--pass-ms must be ROWS:MS, for example 8:2.7, got {text!r}") from None
    checks.count("rows of --pass-ms", point[0], 1, "rows")
    return point[0], checks.positive("--pass-ms", point[1], "milliseconds") / 1e3


def _measured(model: str, threads: int | None) -> tuple[list[tuple[int, float]], float, float]:
    """Returns (rows, seconds) of a model's passes here, the tokens/s of its prefill, and what a request adds."""
    loaded = load_model(model, draft=None, threads=threads, context=1024)
    profile = getattr(loaded.target, "profile_rows", None)
    if profile is None:
        raise UsageError(f"engine {loaded.target.engine!r} cannot be profiled: give --pass-ms and --prefill")
    points = [(rows, profile(rows)) for rows in POINTS]
    rows, seconds = points[-1]
    together, in_one = profile(1, requests=COMPANY), profile(COMPANY)
    return points, rows / seconds, max(0.0, (together - in_one) / (COMPANY - 1))


def _rates(machine: Machine, prompt_tokens: int, output_tokens: int) -> list[float]:
    """Returns loads up to what plain decoding can do with every slot taken."""
    a_request = output_tokens * machine.score(machine.slots) / machine.slots
    most = 1 / (a_request + prompt_tokens / machine.prefill_tokens_per_second)
    return [share * most for share in (0.25, 0.5, 0.75, 1.0)]


def _table(lines: list[tuple[float, str, Report]]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("req/s", justify="right")
    table.add_column("")
    for title in ("tokens/s", "p50 s", "p90 s", "p99 s", "first s", "p99 s", "ms/token", "at once", "draft", "busy"):
        table.add_column(title, justify="right", no_wrap=True)
    for rate, name, report in lines:
        table.add_row(
            f"{rate:.2f}" if name == "plain" else "",
            name,
            f"{report.goodput:.0f}",
            *(f"{value:.2f}" for value in report.latency),
            f"{report.first[0]:.2f}",
            f"{report.first[2]:.2f}",
            f"{1e3 * report.between[0]:.1f}",
            f"{report.load:.1f}",
            f"{report.draft_length:.1f}",
            f"{report.busy:.0%}",
        )
    return table
