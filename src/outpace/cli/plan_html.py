"""A plan as one page of charts with sliders: it stands alone and needs no network."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.theory.length_table import LengthTable
    from outpace.theory.planner import Plan

_EMPTY = '{"plan":null}'


def plan_page(plan: Plan) -> str:
    """Returns the page of a plan; its sliders begin at the best drafter's acceptance and cost."""
    record = plan.record()
    curves = plan.gains_by_concurrency()
    for candidate in record["candidates"]:
        candidate["by_load"] = curves[candidate["name"]]
    shown = plan.chosen or plan.ranked[0]
    return _page({"plan": record, "numbers": {"alpha": shown.candidate.acceptance.value, "cost": shown.first.cost}})


def lengths_page(found: LengthTable) -> str:
    """Returns the page of two numbers: the same one, without a plan."""
    return _page({"plan": None, "numbers": {"alpha": found.acceptance, "cost": found.cost, "slope": found.slope}})


def write_page(path: str, page: str) -> None:
    """Writes the page. Raises UsageError for a name that is no page's; OSError where it cannot be written."""
    if not path.endswith(".html"):
        raise UsageError(f"--html writes a page, whose name ends in .html, got {path!r}")
    Path(path).write_text(page, encoding="utf-8")


def _page(data: dict[str, Any]) -> str:
    # What could end the element or begin a comment in it must not: names are anybody's.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return files("outpace.web").joinpath("plan.html").read_text("utf-8").replace(_EMPTY, text, 1)
