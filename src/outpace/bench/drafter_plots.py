"""Pictures of a report on drafters: speed-up by task, and acceptance by position. Needs the extra 'plots'."""

from __future__ import annotations

from pathlib import Path

from outpace.bench.drafters import ALL, Report
from outpace.errors import MissingExtra


def plot(report: Report, folder: Path) -> list[Path]:
    """Returns the PNG files written into the folder. Raises MissingExtra without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots", "plots") from None
    folder.mkdir(parents=True, exist_ok=True)
    drafters = list(dict.fromkeys(row.drafter for row in report.rows))
    tasks = list(dict.fromkeys(row.task for row in report.rows))
    figure = Figure(figsize=(1.5 + 1.1 * len(tasks), 4), layout="constrained")
    axes = figure.subplots()
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
    axes.set_title(f"{report.model}, temperature {report.temperature:g}: speed-up by task, 95 % intervals")
    axes.legend()
    speed = folder / "speedup-by-task.png"
    figure.savefig(speed, dpi=120)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for row in report.rows:
        if row.task == ALL and row.accepted_by_position:
            positions = range(1, 1 + len(row.accepted_by_position))
            axes.plot(positions, row.accepted_by_position, marker="o", label=row.drafter)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, of drafts that reach it")
    axes.set_ylim(0, 1)
    axes.set_title(f"{report.model}: acceptance by position")
    axes.legend()
    positions_file = folder / "acceptance-by-position.png"
    figure.savefig(positions_file, dpi=120)
    return [speed, positions_file]
