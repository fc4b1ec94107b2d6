"""`outpace bench drafters`: drafters against plain decoding, and what length, size and temperature do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outpace.cli import console, options
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import UsageError, VocabularyMismatch

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.api import Model
    from outpace.bench.drafter_curves import SizeRow
    from outpace.bench.drafters import Prompt, Report


def register(group: typer.Typer) -> None:
    """Adds the command."""
    group.command("drafters")(drafters)


def drafters(
    prompts: Annotated[
        list[Path],
        typer.Option(
            "--prompts",
            metavar="FILE",
            show_default="required",
            help="JSON lines with a task and turns, and perhaps a JSON schema; may be given several times.",
        ),
    ],
    model: options.Model = options.EMBEDDED,
    draft: options.DraftModel = None,
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            metavar="NAME",
            show_default="all that the model can have",
            help="Measure this one; may be given several times.",
        ),
    ] = None,
    per_task: Annotated[int, typer.Option("--per-task", metavar="N", help="Prompts of each task.")] = 10,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Runs of each prompt and drafter.")] = 3,
    temperature: options.Temperature = 0.0,
    max_tokens: options.MaxTokens = 128,
    store: options.Store = None,
    curves: Annotated[
        bool,
        typer.Option(
            "--curves",
            show_default="off",
            help="Also measure acceptance by temperature, and speed by draft length beside the theory's.",
        ),
    ] = False,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--sizes",
            metavar="DRAFT",
            show_default="none",
            help="Also compare drafts by size: a model, of any vocabulary, or a drafter's name; may be given several "
            "times.",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="FOLDER", show_default="none", help="Write pictures there (extra 'plots')."),
    ] = None,
    threads: options.Threads = None,
    exit_layer: options.ExitLayer = None,
    as_json: options.Json = False,
) -> None:
    """Measure drafters over task files, against plain decoding in the same run.

    Runs are interleaved; a prompt's speed-up is the median of its repeats', an interval is a bootstrap over prompts.
    """
    from outpace.bench import drafter_curves, drafter_plots
    from outpace.bench.drafters import measure, read_prompts
    from outpace.registry import usable_drafters

    if repeats < 1:
        raise UsageError(f"repeats must be at least 1, got {repeats}")
    asked = read_prompts(prompts, per_task)
    if plots is not None:
        drafter_plots.check(plots)
    if exit_layer is not None and drafter and "early_exit" not in drafter:
        given = ", ".join(drafter)
        raise UsageError(f"--exit-layer is for the drafter 'early_exit', got --drafter {given}: leave it out")
    run_on = EngineChoice(exit_layer=exit_layer)
    temperatures: list[drafter_curves.TemperaturePoint] = []
    lengths: list[drafter_curves.LengthPoint] = []
    with load_model(model, draft=draft, threads=threads, context=None, engine=run_on, store=store) as loaded:
        usable, _ = usable_drafters(loaded.target, loaded.draft)
        if loaded.draft is None:
            usable.remove("mixture")  # of suffixes alone, which are there already
        names = drafter or usable
        report = measure(
            loaded,
            asked,
            names,
            temperature=temperature,
            max_tokens=max_tokens,
            repeats=repeats,
            progress=console.progress("measuring"),
        )
        if curves:
            temperatures = drafter_curves.temperature_curve(loaded, asked, names, max_tokens=max_tokens)
            lengths = drafter_curves.length_curve(loaded, asked, names, max_tokens=max_tokens)
    rows = [_size(model, name, asked, max_tokens, threads) for name in sizes or ()]
    if plots is not None:
        for file in drafter_plots.plot(report, plots, temperatures, lengths, rows):
            console.note(f"wrote {file}")
    if as_json:
        found: dict[str, list[Any]] = {"temperatures": temperatures, "lengths": lengths, "sizes": rows}
        console.print_json(report.record() | {name: [asdict(one) for one in ones] for name, ones in found.items()})
        return
    console.stdout().print(_table(report))
    if rows:
        console.stdout().print(_sizes(rows))


def _size(model: str, draft: str, asked: list[Prompt], max_tokens: int, threads: int | None) -> SizeRow:
    """Returns the row of a drafter without a model, or of a draft model, whatever its vocabulary."""
    from outpace.bench.drafter_curves import size_row
    from outpace.registry import DRAFTERS

    if draft in DRAFTERS.names():
        with load_model(model, draft=None, threads=threads, context=None) as loaded:
            return size_row(draft, loaded, draft, asked, max_tokens=max_tokens)
    with _with_draft(model, draft, threads) as loaded:
        return size_row(Path(draft).stem, loaded, "model", asked, max_tokens=max_tokens)


def _with_draft(model: str, draft: str, threads: int | None) -> Model:
    try:
        return load_model(model, draft=draft, threads=threads, context=None)
    except VocabularyMismatch:
        return load_model(model, draft=draft, threads=threads, context=None, engine=EngineChoice(translate="token"))


def _sizes(rows: list[SizeRow]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="dim", title="drafts by size", title_justify="left")
    table.add_column("draft")
    columns = ("MB a token", "c", "alpha", "1/(1 - alpha)", "length", "formula", "predicted", "measured")
    for column in columns:
        table.add_column(column, justify="right")
    best = max(rows, key=lambda row: row.measured)
    for row in rows:
        table.add_row(
            row.draft,
            f"{row.draft_bytes / 1e6:.0f}",
            f"{row.cost:.2f}",
            f"{row.acceptance:.2f}",
            f"{row.ceiling:.2f}",
            str(row.length),
            f"{row.formula:.2f}",
            f"{row.predicted:.2f}",
            f"{row.measured:.2f}" + (" best" if row is best else ""),
        )
    return table


def _table(report: Report) -> Table:
    from rich.table import Table

    title = (
        f"{report.model}, temperature {report.temperature:g}, {report.max_tokens} tokens, {report.repeats} repeats"
    )
    table = Table(box=None, padding=(0, 1), header_style="dim", title=title, title_justify="left")
    table.add_column("drafter")
    table.add_column("task")
    columns = ("tokens/s", "times plain", "95 %", "first run", "tokens/step", "accepted", "draft", "score")
    for column in columns:
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(
            row.drafter,
            row.task,
            f"{row.tokens_per_second:.1f}",
            f"{row.speedup:.2f}",
            f"{row.low:.2f}-{row.high:.2f}",
            f"{row.cold_speedup:.2f}",
            f"{row.tokens_per_step:.2f}",
            "-" if row.acceptance is None else f"{row.acceptance:.0%}",
            f"{row.draft_share:.0%}",
            f"{row.score_share:.0%}",
        )
    return table
