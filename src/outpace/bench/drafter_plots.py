"""Pictures of a report on drafters, and of what length, size and temperature do. Needs the extra 'plots'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.bench.drafter_curves import LengthPoint, SizeRow, TemperaturePoint
from outpace.bench.drafters import ALL, Report
from outpace.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check(folder: Path) -> None:
    """Raises MissingExtra without matplotlib, UsageError where a file has the folder's name: before any work."""
    try:
        import matplotlib.figure  # noqa: F401  (whether it is there)
    except ImportError:
        raise MissingExtra("plots", "plots") from None
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"pictures go into a folder, and {folder} is a file: name another")


def plot(
    report: Report,
    folder: Path,
    temperatures: Sequence[TemperaturePoint] = (),
    lengths: Sequence[LengthPoint] = (),
    sizes: Sequence[SizeRow] = (),
) -> list[Path]:
    """Returns the PNG files written into the folder, one of each kind there is data for.

    Raises MissingExtra without matplotlib.
    """
    check(folder)
    from matplotlib.figure import Figure

    drafters = list(dict.fromkeys(row.drafter for row in report.rows))
    tasks = list(dict.fromkeys(row.task for row in report.rows))
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []

    def keep(figure: Figure, name: str) -> None:
        drawn.append(folder / f"{name}.png")
        figure.savefig(drawn[-1], dpi=120)

    figure = Figure(figsize=(2.5 + (0.3 + 0.16 * len(drafters)) * len(tasks), 4.5), layout="constrained")
    _by_task(figure.subplots(), report, drafters, tasks)
    figure.legend(loc="outside right upper")
    keep(figure, "speedup-by-task")
    kinds: tuple[tuple[str, Callable[[Any, Any], None], Sequence[Any]], ...] = (
        ("acceptance-by-position", _by_position, report.rows),
        ("acceptance-by-temperature", _by_temperature, temperatures),
        ("speedup-by-length", _by_length, lengths),
        ("speedup-by-size", _by_size, sizes),
    )
    for name, draw, data in kinds:
        if data:
            figure = Figure(figsize=(6.5, 4.5), layout="constrained")
            axes = figure.subplots()
            draw(axes, data)
            axes.set_title(f"{report.model}: {axes.get_title()}", fontsize="medium")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize="small")
            keep(figure, name)
    return drawn


def _by_task(axes: Any, report: Report, drafters: Sequence[str], tasks: Sequence[str]) -> None:
    width = 0.8 / len(drafters)
    for i, name in enumerate(drafters):
        rows = [row for row in report.rows if row.drafter == name]
        places = [tasks.index(row.task) + (i - (len(drafters) - 1) / 2) * width for row in rows]
        below = [row.speedup - row.low for row in rows]
        above = [row.high - row.speedup for row in rows]
        axes.bar(places, [row.speedup for row in rows], width, yerr=[below, above], capsize=2, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(tasks)), [task.replace("_", " ") for task in tasks], rotation=20, ha="right")
    axes.set_ylabel("times plain decoding")
    title = f"{report.model}, temperature {report.temperature:g}: speed-up by task, 95 % intervals"
    axes.set_title(title, fontsize="medium")


def _by_position(axes: Any, rows: Sequence[Any]) -> None:
    for row in rows:
        if row.task == ALL and row.accepted_by_position:
            positions = range(1, 1 + len(row.accepted_by_position))
            axes.plot(positions, row.accepted_by_position, marker="o", label=row.drafter)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, of drafts that reach it")
    axes.set_ylim(0, 1)
    axes.set_title("acceptance by position")


def _by_temperature(axes: Any, points: Sequence[TemperaturePoint]) -> None:
    for name in dict.fromkeys(point.drafter for point in points):
        known = [(p.temperature, p.acceptance) for p in points if p.drafter == name and p.acceptance is not None]
        axes.plot([t for t, _ in known], [share for _, share in known], marker="o", label=name)
    axes.set_xlabel("temperature")
    axes.set_ylabel("guesses that are right")
    axes.set_ylim(0, 1)
    axes.set_title("acceptance by temperature")


def _by_length(axes: Any, points: Sequence[LengthPoint]) -> None:
    for name in dict.fromkeys(point.drafter for point in points):
        own = [point for point in points if point.drafter == name]
        lengths = [point.length for point in own]
        [line] = axes.plot(lengths, [point.measured for point in own], marker="o", label=name)
        axes.plot(lengths, [p.predicted for p in own], "--", color=line.get_color(), label=f"{name}, theory")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xlabel("draft length")
    axes.set_ylabel("times plain decoding")
    axes.set_title("speed-up by draft length")


def _by_size(axes: Any, rows: Sequence[SizeRow]) -> None:
    costs = [row.cost for row in rows]
    axes.scatter(costs, [row.measured for row in rows], label="measured")
    axes.scatter(costs, [row.predicted for row in rows], marker="x", label="theory, rows as they cost")
    for i, row in enumerate(rows):
        text, place = f"{row.draft}\nalpha {row.acceptance:.2f}", (6, -14 if i % 2 else 2)
        axes.annotate(text, (row.cost, row.measured), xytext=place, textcoords="offset points", fontsize="x-small")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xlim(left=-0.02, right=1.25 * max([*costs, 0.1]))
    axes.set_xlabel("c, a drafted token in plain passes")
    axes.set_ylabel("times plain decoding")
    axes.set_title("what a draft's size costs and brings")
