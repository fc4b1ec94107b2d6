"""What the machine lets this process use: cores and memory, container limits included."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """Returns the number of physical cores that this process may run on, at least 1.

    Two threads on one core share its arithmetic units and its memory port, so a second one gains nothing here. A
    container's quota counts, rounded up: more threads than the quota would be stopped in the middle of a pass.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in allowed}
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
        return max(1, min(len(cores), math.ceil(int(quota[0]) / int(quota[1]))))
    return max(1, len(cores))


def available_memory() -> int | None:
    """Returns the bytes that can be allocated without swapping, or None where the system does not say."""
    figures = [_meminfo("MemAvailable")]
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        figures.append(max(0, int(limit) - int(used) + _reclaimable()))
    known = [figure for figure in figures if figure is not None]
    return min(known, default=None)


def _siblings(cpu: int) -> str:
    return _read(_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").strip() or str(cpu)


def _meminfo(key: str) -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _reclaimable() -> int:
    """Returns the bytes of file cache that count as used in the container but are given up when asked for."""
    for line in _read(_CGROUP / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
