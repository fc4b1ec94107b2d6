"""What `outpace tune` saved for a model on this machine: costs that a later process begins with.

A profile changes how much is drafted, never what is said. It is read only where it is meant for the same model,
draft, thread count and processor; any other is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import platformdirs

from outpace.control import CostProfile
from outpace.errors import UsageError
from outpace.types import Target

FORMAT = "outpace profile 1"

WEIGHT = 3
"""Times each saved cost is counted: enough to be used at once, few enough to give way to new measurements."""

LARGEST = 1 << 20


def folder() -> Path:
    """Returns where profiles lie; OUTPACE_PROFILES moves it."""
    given = os.environ.get("OUTPACE_PROFILES")
    return Path(given) if given else Path(platformdirs.user_cache_dir("outpace")) / "profiles"


def meant_for(target: Target, draft: Target | None) -> dict[str, Any]:
    """Returns what a profile must have been measured on to be of use for these."""
    return {
        "model": target.name,
        "weight_bytes": target.weight_bytes,
        "engine": target.engine,
        "draft": None if draft is None else draft.name,
        "threads": target.threads,
        "kernel": os.environ.get("OUTPACE_KERNEL"),
        "cpu": _cpu(),
    }


def path_of(key: Mapping[str, Any]) -> Path:
    """Returns the file of a profile that is meant for `key`."""
    digest = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    name = "".join(c if c.isalnum() or c in "-." else "-" for c in str(key["model"]))
    return folder() / f"{name}-{digest}.json"


def save(
    key: Mapping[str, Any],
    seconds_by_rows: Mapping[int, float],
    draft_seconds: Mapping[str, float],
    recommended: Mapping[str, Any] | None,
) -> Path:
    """Returns the file, written whole or not at all. draft_seconds: of a drafted token, by drafter."""
    target = path_of(key)
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "format": FORMAT,
        "for": dict(key),
        "seconds_by_rows": {str(rows): seconds for rows, seconds in seconds_by_rows.items()},
        "draft_seconds": dict(draft_seconds),
        "recommended": recommended,
    }
    work = target.with_name(f".{target.name}.{os.getpid()}")
    work.write_text(json.dumps(record, indent=1, allow_nan=False), encoding="utf-8")
    os.replace(work, target)
    return target


def recall(target: Target, draft: Target | None) -> CostProfile:
    """Returns the costs saved for these, or what is assumed without.

    Raises UsageError for a file that is there and is no profile, with the remedy.
    """
    costs, key = CostProfile(), meant_for(target, draft)
    file = path_of(key)
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST)
    except OSError:
        return costs
    try:
        record = json.loads(text)
        if record["format"] != FORMAT or record["for"] != key:
            raise ValueError("it is meant for something else")
        by_rows = {int(rows): _seconds(value) for rows, value in record["seconds_by_rows"].items()}
        drafts = {str(name): _seconds(value) for name, value in record["draft_seconds"].items()}
        _fill(costs, by_rows, drafts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file} is no profile ({error}): remove it, or run outpace tune again") from None
    return costs


def _fill(costs: CostProfile, by_rows: Mapping[int, float], drafts: Mapping[str, float]) -> None:
    plain = by_rows[1]
    for rows, seconds in sorted(by_rows.items()):
        if rows > 1:
            for _ in range(WEIGHT):
                costs.score.observe(rows, seconds / plain)
    for name, seconds in drafts.items():
        for length in (1, 8):
            for _ in range(WEIGHT):
                costs.drafting(name).observe(length, length * seconds / plain)


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0.0 <= seconds < 3600.0:
        raise ValueError(f"seconds must be in [0, 3600), got {value!r:.40}")
    return seconds


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
