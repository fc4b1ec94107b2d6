"""A plan as pictures: speed-up by draft length and by load, and where the memory goes. Needs the extra 'plots'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.errors import MissingExtra

if TYPE_CHECKING:
    from outpace.theory.length_table import LengthTable
    from outpace.theory.planner import Plan

DOTS_PER_INCH = 120


def plan_pictures(plan: Plan, folder: Path) -> list[Path]:
    """Returns the PNG files of a plan, written into the folder. Raises MissingExtra without matplotlib."""
    shown = plan.chosen or plan.ranked[0]
    first, question = shown.first, plan.question
    title = f"{shown.candidate.name} for {question.target.name}, {question.device.name}, {first.requests:,} at once"
    own = f"{shown.candidate.acceptance.value:.2f}, as planned"
    return [
        _by_length(folder, f"{title}\nc = {first.cost:.3f}", plan.gains_by_length(), own),
        _by_load(folder, plan),
        _memory(folder, plan),
    ]


def length_pictures(found: LengthTable, folder: Path) -> list[Path]:
    """Returns the PNG file of two numbers' table. Raises MissingExtra without matplotlib."""
    title = f"c = {found.cost:.3g}" + (f", each further row {found.slope:.3g} of a pass" if found.slope else "")
    return [_by_length(folder, title, found.curves(), f"{found.acceptance:.2f}, as given")]


def _by_length(
    folder: Path, title: str, curves: Mapping[float | None, Sequence[tuple[int, float]]], own: str
) -> Path:
    """curves: acceptance -> (draft length, speed-up); None: the plan's own, named `own`."""
    figure, axes = _figure(6.4, 4.2)
    for alpha, points in curves.items():
        style = {"color": "black", "linewidth": 2.2} if alpha is None else {"linewidth": 1.2}
        axes.plot(*zip(*points, strict=True), marker=".", label=own if alpha is None else f"{alpha:g}", **style)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xlabel("tokens a draft")
    axes.set_ylabel("times plain decoding")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    axes.legend(title="acceptance rate", fontsize=8, title_fontsize=8)
    return _saved(figure, folder, "speedup-by-length.png")


def _by_load(folder: Path, plan: Plan) -> Path:
    figure, axes = _figure(6.4, 4.2)
    for name, points in plan.gains_by_concurrency().items():
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("requests at once, as far as they fit")
    axes.set_ylabel("times plain decoding at the same load")
    question = plan.question
    axes.set_title(f"{question.target.name}, {question.device.name}, context {question.context:,}", fontsize=10)
    if axes.lines[1:]:
        axes.legend(fontsize=8)
    return _saved(figure, folder, "speedup-by-load.png")


def _memory(folder: Path, plan: Plan) -> Path:
    """Bars of what each choice takes with the most requests asked for, and how many would fit."""
    fit, requests = plan.fit, max(plan.question.concurrency)
    choices: list[tuple[str, float, float, int]] = [("no draft", 0.0, 0.0, fit.requests)]
    choices += [
        (one.candidate.name, one.weight_bytes, one.cache_bytes_per_request, one.requests)
        for one in plan.ranked
        if one.weight_bytes
    ]
    parts = {
        "target's weights": [fit.weight_bytes for _ in choices],
        "draft's weights": [weights for _, weights, _, _ in choices],
        "activations": [fit.activation_bytes for _ in choices],
        "reserve": [fit.reserve_bytes for _ in choices],
        f"cache of {requests:,} at once": [requests * fit.cache_bytes_per_request for _ in choices],
        "draft's cache": [requests * cache for _, _, cache, _ in choices],
    }
    figure, axes = _figure(7.2, 1.6 + 0.42 * len(choices))
    left = [0.0] * len(choices)
    for label, sizes in parts.items():
        widths = [size / 1e9 for size in sizes]
        axes.barh(range(len(choices)), widths, left=left, height=0.6, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.axvline(fit.memory_bytes / 1e9, color="black", linewidth=1.2)
    axes.set_xlim(0, 1.15 * max(fit.memory_bytes / 1e9, *left))
    for place, (end, (_, _, _, most)) in enumerate(zip(left, choices, strict=True)):
        axes.annotate(
            f"{most:,} fit", (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(choices)), [name for name, *_ in choices])
    axes.invert_yaxis()
    axes.set_xlabel(f"GB; the line: {fit.memory_bytes / 1e9:.0f} GB of {plan.question.device.name}")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return _saved(figure, folder, "memory.png")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots", "plots") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _saved(figure: Any, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=DOTS_PER_INCH)
    return folder / name
