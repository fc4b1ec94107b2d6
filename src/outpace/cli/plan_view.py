"""A plan as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from outpace.cli import console

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.theory.engine_settings import Settings
    from outpace.theory.length_table import LengthTable
    from outpace.theory.planner import Plan
    from outpace.theory.ranking import Ranked


def show_plan(plan: Plan, settings: Sequence[Settings], checked: str) -> None:
    """Writes verdict, ranking, reasons, memory, assumptions and settings to stdout."""
    out, question = console.stdout(), plan.question
    where = f"{question.devices} x {question.device.name}" if question.devices > 1 else question.device.name
    out.print(
        f"{question.target.name} ({question.target.parameters / 1e9:.2f}B, {question.precision.name}) on {where}, "
        f"context {question.context:,}, tasks {', '.join(question.tasks)}\n"
    )
    for line in (plan.verdict, plan.alternative, plan.latency):
        if line:
            out.print(line[0].upper() + line[1:], soft_wrap=True)
    out.print()
    out.print(_ranking(plan))
    out.print()
    for one in plan.ranked:
        out.print(f"{one.candidate.name}: {one.reason}", soft_wrap=True)
        if one.rule_of_thumb:
            out.print(f"  {one.rule_of_thumb}", soft_wrap=True)
    out.print()
    for line in _memory(plan):
        out.print(line, soft_wrap=True)
    out.print("\nAssumed (each option replaces its figure):")
    for assumption in plan.assumptions:
        out.print(
            f"  {assumption.name}: {assumption.value} ({assumption.source}) {assumption.option}", soft_wrap=True
        )
    subject = plan.chosen.candidate.name if plan.chosen else "plain decoding"
    out.print(f"\nSettings for {subject}; put your files or ids where names of presets stand:")
    for one_engine in settings:
        note = f"; {checked}" if one_engine.engine == "vLLM" else ""
        out.print(f"\n  {one_engine.engine} ({one_engine.versions}{note})", soft_wrap=True)
        for line in one_engine.text.splitlines():
            out.print(f"    {line}", soft_wrap=True)


def _ranking(plan: Plan) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("\ndrafter", no_wrap=True)
    loads = [f"times (draft)\nat {requests:,}" for requests in plan.question.concurrency]
    for title in (*loads, "tokens\na step", "ms a\ntoken", "pays\nup to", "weights\nGB", "requests\nfit", "\nlost"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in plan.ranked:
        table.add_row(*_row(one), style="bold" if one is plan.chosen else None)
    bare = plan.plain[0]
    times = ["1.00 (0)" if load.fits else "-" for load in plan.plain]
    table.add_row("none", *times, "1.00", f"{1e3 * bare.seconds_per_token:.2f}", "", "", f"{plan.fit.requests:,}", "")
    return table


def _row(one: Ranked) -> Iterator[str]:
    first, usable = one.first, one.candidate.unusable is None
    yield one.candidate.name
    for load in one.loads:
        yield f"{load.speedup:.2f} ({load.draft_length})" if usable and load.fits else "-"
    yield f"{first.tokens_per_step:.2f}"
    yield f"{1e3 * first.seconds_per_token:.2f}"
    yield "any" if one.pays_up_to is None else f"{one.pays_up_to:,}"
    yield f"{one.weight_bytes / 1e9:.2f}"
    yield f"{one.requests:,}"
    yield f"{one.requests_lost:,}"


def _memory(plan: Plan) -> Iterator[str]:
    fit = plan.fit
    yield (
        f"Memory without a draft: {fit.memory_bytes / 1e9:.1f} GB less {fit.weight_bytes / 1e9:.1f} of weights, "
        f"{fit.activation_bytes / 1e9:.1f} of activations and {fit.reserve_bytes / 1e9:.1f} of reserve leaves "
        f"{max(0.0, fit.room_bytes) / 1e9:.1f} GB"
    )
    yield f"  {fit.cache_bytes_per_request / 1e6:.1f} MB of cache a request: {fit.requests:,} at once"
    for one in plan.ranked:
        if one.weight_bytes:
            yield (
                f"  with {one.candidate.name}: {one.weight_bytes / 1e9:.2f} GB and "
                f"{one.cache_bytes_per_request / 1e6:.1f} MB a request more: {one.requests:,} at once, "
                f"{one.requests_lost:,} lost"
            )


def show_lengths(found: LengthTable) -> None:
    """Writes tokens and speed-up by draft length, and the bounds."""
    from rich.table import Table

    out = console.stdout()
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("draft length", "tokens a pass", "times plain", "operations"):
        table.add_column(title, justify="right")
    for row in found.lengths:
        table.add_row(
            str(row.draft_length),
            f"{row.tokens_per_step:.2f}",
            f"{row.speedup:.2f}",
            f"{row.operations_factor:.2f}",
            style="bold" if row.draft_length == found.best.draft_length else None,
        )
    out.print(f"{found.verdict[0].upper()}{found.verdict[1:]}\n", soft_wrap=True)
    out.print(table)
    ceiling = "none" if found.ceiling is None else f"{found.ceiling:.2f} tokens a pass"
    out.print(f"\nceiling 1 / (1 - alpha): {ceiling}")
    if found.slope == 0.0:
        out.print(f"the best length gains at least (1 + alpha) / (1 + c): {found.at_least:.2f} times plain")
    out.print("operations: arithmetic a token over plain's, with the draft's taken to be c")
