"""A benchmark run and a comparison as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.cli import console

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.bench.comparison import Change
    from outpace.bench.intervals import Interval
    from outpace.bench.run import Run
    from outpace.bench.summary import Line


def show_run(run: Run) -> None:
    """Writes speed by task, latency, cold starts, checks, and what is missing."""
    from outpace.bench.summary import summarise

    out, lines = console.stdout(), summarise(run)
    settings = run.settings
    draft = f", draft {settings['draft']}" if settings.get("draft") else ""
    out.print(
        f"{settings.get('model')}{draft}, {settings.get('threads')} threads, {len(run.questions)} prompts of up to "
        f"{settings.get('max_tokens')} tokens, {settings.get('repeats')} repeats\n",
        soft_wrap=True,
    )
    out.print(_speeds(run, lines))
    out.print()
    out.print(_latencies(lines))
    out.print()
    for line in remarks(run):
        out.print(line, soft_wrap=True)


def remarks(run: Run) -> list[str]:
    """Returns what stands below the tables: cold starts, checks, missing peers, failures."""
    found = [
        f"cold: {one.name} loads in {one.load_seconds:.2f} s, first token of the first answer after "
        f"{1e3 * one.cold.first_seconds:.0f} ms"
        for one in run.entrants.values()
        if one.cold is not None
    ]
    for check in run.checks:
        words = "same tokens as plain decoding" if check.holds else "NOT plain decoding's tokens"
        where = "" if check.holds else f", first at {check.first_difference}"
        found.append(f"{check.contender}: {words} at {check.equal} of {check.prompts} prompts, {check.what}{where}")
    found += [f"{one.name} left the run: {one.failed}" for one in run.entrants.values() if one.failed]
    found += [f"missing: {name} ({why})" for name, why in run.missing.items()]
    if run.ended:
        found.append(f"the run ended early: {run.ended}; these are the figures so far")
    return found


def _speeds(run: Run, lines: Sequence[Line]) -> Table:
    from rich.table import Table

    from outpace.bench.summary import ALL, tasks_of

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    tasks = tasks_of(run)
    table.add_column("tokens/s", no_wrap=True)
    for title in ("all", "times plain", *(task.replace("_", " ") for task in tasks if task != ALL)):
        table.add_column(title, justify="right")
    for name in run.entrants:
        mine = {line.task: line for line in lines if line.contender == name}
        if ALL not in mine:
            continue
        over = mine[ALL].over_plain
        table.add_row(
            name,
            interval(mine[ALL].tokens_per_s, 0),
            "" if over is None else interval(over, 2),
            *(f"{mine[task].tokens_per_s.value:.0f}" if task in mine else "-" for task in tasks if task != ALL),
        )
    return table


def _latencies(lines: Sequence[Line]) -> Table:
    from rich.table import Table

    from outpace.bench.summary import ALL

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("latency, ms", no_wrap=True)
    for title in ("first token", "a token p50", "p90", "p99", "longest wait p99", "tokens a step", "accepted"):
        table.add_column(title, justify="right")
    for line in lines:
        if line.task == ALL:
            table.add_row(
                line.contender,
                f"{1e3 * line.first_seconds:.0f}",
                *(f"{1e3 * seconds:.2f}" for seconds in line.token_seconds),
                f"{1e3 * line.gap_seconds[-1]:.1f}",
                "" if line.tokens_per_step is None else f"{line.tokens_per_step:.2f}",
                "" if line.acceptance_rate is None else f"{100 * line.acceptance_rate:.0f} %",
            )
    return table


def show_changes(changes: Sequence[Change]) -> None:
    """Writes each change with its interval and verdict."""
    from rich.table import Table

    out = console.stdout()
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for title in ("contender", "task"):
        table.add_column(title, no_wrap=True)
    for title in ("prompts", "tokens/s, times before", "times plain, times before"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for change in changes:
        against = "" if change.against_plain is None else interval(change.against_plain, 3)
        table.add_row(
            change.contender,
            change.task,
            str(change.prompts),
            interval(change.speed, 3),
            against,
            change.verdict,
        )
    out.print(table)


def interval(figure: Interval, digits: int) -> str:
    """Returns a figure with its interval."""
    if figure.low is None or figure.high is None:
        return f"{figure.value:.{digits}f}"
    return f"{figure.value:.{digits}f} ({figure.low:.{digits}f}-{figure.high:.{digits}f})"
