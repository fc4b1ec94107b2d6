"""What the machine lets this process use: cores and memory, container limits included."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from pathlib import Path

from outpace.errors import UsageError

MAX_THREADS = 1024

_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_DEVICES = Path("/sys/devices")


def usable_cores() -> int:
    """Returns how many threads a pass should have: one for each fast physical core of a memory node, at least 1.

    Only cores that this process may run on count. Two threads on one core share its arithmetic units and its memory
    port, so a second one gains nothing here. Threads meet several times a layer and have equal shares: a slow core of
    a hybrid processor would hold up the fast ones, and so would memory behind another node. A container's quota
    counts, rounded up: more threads than the quota would be stopped in the middle of a pass.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in _of_one_node(_fast(allowed))}
    count = _performance_cores_of_macos() or len(cores)
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
        count = min(count, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, count)


def checked_threads(threads: int) -> int:
    """Returns the number. Raises UsageError unless it is one of threads."""
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads must be in [1, {MAX_THREADS}], got {threads}")
    return threads


def available_memory() -> int | None:
    """Returns the bytes that can be allocated without swapping, or None where the system does not say."""
    figures = [_meminfo("MemAvailable")]
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        figures.append(max(0, int(limit) - int(used) + _reclaimable()))
    known = [figure for figure in figures if figure is not None]
    return min(known, default=None)


def _fast(cpus: set[int]) -> set[int]:
    """Returns the fast cores of a hybrid processor, or all of another one.

    Intel's are listed; elsewhere the system gives capacities, and a core below 3/4 of the largest is slow.
    """
    listed = _cpu_list(_read(_DEVICES / "cpu_core" / "cpus")) & cpus
    if listed:
        return listed
    capacities = {cpu: _read(_TOPOLOGY / f"cpu{cpu}" / "cpu_capacity").strip() for cpu in cpus}
    known = {cpu: int(capacity) for cpu, capacity in capacities.items() if capacity.isdigit()}
    if len(known) < len(cpus):
        return cpus
    return {cpu for cpu in cpus if 4 * known[cpu] >= 3 * max(known.values())}


def _of_one_node(cpus: set[int]) -> set[int]:
    """Returns the cores of the memory node that has most of them."""
    nodes = [_cpu_list(_read(folder / "cpulist")) & cpus for folder in sorted(_NODES.glob("node[0-9]*"))]
    return max(nodes, key=len, default=set()) or cpus


def _cpu_list(text: str) -> set[int]:
    """Returns the numbers of a list as the system writes it: "0-3,8,10-11"."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _performance_cores_of_macos() -> int | None:
    if sys.platform != "darwin":
        return None
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    done = ctypes.CDLL(None).sysctlbyname(
        b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return value.value if done == 0 and value.value > 0 else None


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
