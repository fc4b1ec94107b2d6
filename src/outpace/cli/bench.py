"""`outpace bench`: measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import bench_drafters, bench_paper, bench_run, console, options
from outpace.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.bench.kernels import KernelReport


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Measure.")
    group.command("kernels")(kernels)
    bench_run.register(group)
    bench_drafters.register(group)
    group.command("paper")(bench_paper.paper)
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
