"""What passes cost on this machine, measured once and kept in the user's cache, by model, kernel and threads.

The file only saves time: one that is absent, old or spoilt means that the costs are measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import perf_counter as clock

import platformdirs

from outpace.costs import CostProfile
from outpace.errors import OutpaceError
from outpace.types import Draft, Prompt, Target

VERSION = 4
"""Of the kernels' speed and of how costs are learnt: raised when they change, so that older ones are not believed."""

ROWS = (1, 4, 8, 2, 6, 16, 3, 12, 5, 10, 14)
"""Counts that are measured, as far as there is time; the curve is straight between them."""

IN_A_ROW = 3
"""Passes of a count one after the other, of which the first is not believed."""

SECONDS, MOST_REPEATS = 0.5, 3
"""A profile ends after this time or so many repeats: few, so that what decoding shows soon outweighs them."""

WEIGHT = 3
"""Times that a cost which was measured with care is counted: enough to be used at once, few enough to give way."""

CONTEXT = 192
"""Tokens before the measured rows."""


def profile(target: Target, draft: Target | None = None) -> CostProfile:
    """Returns the costs of a target's passes, and of the draft model's tokens, kept or measured now."""
    file = folder() / f"{key(target)}.json"
    costs = _kept(file)
    if costs is None:
        costs = _measured(target)
        if costs.plain_seconds:
            _write(file, costs)
    if draft is not None and costs.plain_seconds:
        costs.expect_drafts("model", profile(draft).plain_seconds)
    return costs


def keep(target: Target, costs: CostProfile) -> None:
    """Writes what was learnt since."""
    if costs.plain_seconds:
        _write(folder() / f"{key(target)}.json", costs)


def learn(target: Target, seconds_by_rows: Mapping[int, float]) -> Path:
    """Returns the file in which these costs of passes now stand instead of what was known; one row must be there."""
    costs = CostProfile()
    for rows, seconds in sorted(seconds_by_rows.items()):
        for _ in range(WEIGHT):
            costs.observe(rows, seconds)
    keep(target, costs)
    return folder() / f"{key(target)}.json"


def folder() -> Path:
    """Returns where profiles are kept; OUTPACE_PROFILES moves it."""
    given = os.environ.get("OUTPACE_PROFILES")
    return Path(given) if given else Path(platformdirs.user_cache_dir("outpace")) / "costs"


def key(target: Target) -> str:
    """Returns a hash of all that a pass's cost depends on."""
    kernel = getattr(target, "kernel", None) or getattr(getattr(target, "model", None), "kernel", "")
    facts = (target.engine, target.name, target.weight_bytes, target.hidden_layers, target.vocab_size, kernel)
    machine = (target.threads, platform.machine(), _processor(), VERSION)
    return hashlib.sha256(repr((*facts, *machine)).encode()).hexdigest()[:24]


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _measured(target: Target) -> CostProfile:
    """Returns what passes cost now; nothing is known of a target that cannot be opened with ids alone."""
    costs = CostProfile()
    context = min(CONTEXT, target.max_length // 2)
    ids = [(7919 * i) % target.vocab_size for i in range(context + max(ROWS))]
    try:
        session, _ = target.open(Prompt(tuple(ids[:context])))
    except OutpaceError:
        return costs
    try:
        drafts = [Draft.chain(ids[context : context + n - 1]) for n in ROWS if context + n <= target.max_length]
        target.score_many([(session, drafts[-1])])  # faults the memory in
        begun = clock()
        for _ in range(MOST_REPEATS):
            for draft in drafts:
                if costs.score.longest > 1 and clock() - begun > SECONDS:
                    return costs
                for again in range(IN_A_ROW):
                    start = clock()
                    target.score_many([(session, draft)])
                    if again:  # as in decoding: after a pass of the same kind
                        costs.observe(1 + len(draft), clock() - start)
    finally:
        session.close()
    return costs


def _kept(file: Path) -> CostProfile | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return CostProfile.of(data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _write(file: Path, costs: CostProfile) -> None:
    """Writes the file; where that cannot be, the costs are measured again the next time."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-", delete=False, encoding="utf-8") as out:
            try:
                json.dump(costs.record(), out)
                out.close()
                os.replace(out.name, file)
            except BaseException:
                os.unlink(out.name)
                raise
