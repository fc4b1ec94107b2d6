"""`outpace bench`: measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import bench_run, console, options
from outpace.cli.loading import load_model
from outpace.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.bench.drafters import Report
    from outpace.bench.kernels import KernelReport


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Measure.")
    group.command("kernels")(kernels)
    bench_run.register(group)
    group.command("drafters")(drafters)
    app.add_typer(group, name="bench")


def kernels(
    model: options.Model = options.EMBEDDED,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers",
            show_default="off",
            help="Measure llama.cpp on the same file, interleaved in the same run (extra 'peers').",
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="X", help="How long to repeat; every case is run 5 times at least.")
    ] = 20.0,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure a forward by rows, beside the least that this machine allows.

    The floor is max(bytes of weights and cache / bandwidth, multiply-adds / integer rate), with both ceilings
    measured in the same run. Times are medians of interleaved repeats.
    """
    from outpace.bench.compare import bench_kernels

    if not 0 <= seconds <= 3600:
        raise UsageError(f"seconds must be in [0, 3600], got {seconds}")
    report = bench_kernels(
        model, threads=threads, peers=peers, seconds=seconds, progress=console.progress("measuring")
    )
    if as_json:
        console.print_json(report.record())
    else:
        _show(report)


def drafters(
    prompts: Annotated[
        list[Path],
        typer.Option(
            "--prompts",
            metavar="FILE",
            show_default="required",
            help="JSON lines with a task and turns; may be given several times.",
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
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="FOLDER", show_default="none", help="Write pictures there (extra 'plots')."),
    ] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure drafters over task files, against plain decoding in the same run.

    Runs are interleaved; a prompt's time is the median of its repeats, an interval is a bootstrap over prompts.
    """
    from outpace.bench.drafters import measure, read_prompts
    from outpace.registry import usable_drafters

    if repeats < 1:
        raise UsageError(f"repeats must be at least 1, got {repeats}")
    asked = read_prompts(prompts, per_task)
    with load_model(model, draft=draft, threads=threads, context=None, store=store) as loaded:
        progress = console.progress("measuring")
        usable, _ = usable_drafters(loaded.target, loaded.draft)
        if loaded.draft is None:
            usable.remove("mixture")  # of suffixes alone, which are there already
        report = measure(
            loaded,
            asked,
            drafter or usable,
            temperature=temperature,
            max_tokens=max_tokens,
            repeats=repeats,
            progress=progress,
        )
    if plots is not None:
        from outpace.bench.drafter_plots import plot

        for file in plot(report, plots):
            console.note(f"wrote {file}")
    if as_json:
        console.print_json(report.record())
    else:
        console.stdout().print(_drafters(report))


def _drafters(report: Report) -> Table:
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


def _show(report: KernelReport) -> None:
    out = console.stdout()
    out.print(f"{report.model}, kernel {report.kernel}, {report.threads} threads, {report.repeats} repeats or more")
    out.print(
        f"ceilings: {report.bandwidth_gb_per_s:.1f} GB/s, {report.integer_gmac_per_s:.0f} billion multiply-adds/s, "
        f"{report.wide_gmac_per_s:.0f} with codes of all 8 bits"
    )
    out.print(_forward(report))
    out.print(
        f"one row reads {report.weights_gb_per_s:.1f} GB/s of weights; "
        f"prefill {report.prefill_tokens_per_s:.0f} tokens/s"
    )
    if report.peer is not None:
        out.print(_peer(report))


def _forward(report: KernelReport) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("context", "rows", "ms", "floor ms", "over floor", "over 1 row", "GB/s"):
        table.add_column(title, justify="right")
    for line in report.forward:
        table.add_row(
            str(line.context),
            str(line.rows),
            f"{1e3 * line.seconds:.2f}",
            f"{1e3 * line.floor_seconds:.2f}",
            f"{line.over_floor:.2f}",
            f"{report.over_one_row(line):.2f}",
            f"{report.gb_per_s(line):.1f}",
        )
    return table


def _peer(report: KernelReport) -> Table:
    from rich.table import Table

    peer = report.peer
    assert peer is not None
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("", "outpace", f"{peer.name} ({peer.version})", "times as fast"):
        table.add_column(title, justify="right" if title else "left")
    for line in report.against_peer():
        table.add_row(
            line.case, f"{line.ours:.2f} {line.unit}", f"{line.theirs:.2f} {line.unit}", f"{line.factor:.2f}"
        )
    return table
