"""What this machine is: processor, memory, versions. Read from the system, never guessed."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGES = ("numpy", "tokenizers", "jinja2", "typer", "rich")
"""The packages whose versions a report of a fault should carry."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor and its memory; None where the system does not say."""

    processor: str
    architecture: str
    logical_cores: int
    usable_cores: int
    physical_cores: int | None
    numa_nodes: int | None
    memory_bytes: int | None
    available_bytes: int | None


def describe() -> Machine:
    """Returns the machine that this process runs on."""
    return Machine(
        processor=_processor_name(),
        architecture=platform.machine(),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        physical_cores=_physical_cores(Path("/sys/devices/system/cpu")),
        numa_nodes=_count(Path("/sys/devices/system/node"), r"node\d+"),
        memory_bytes=_meminfo("MemTotal"),
        available_bytes=_meminfo("MemAvailable"),
    )


def usable_cores() -> int:
    """Returns how many logical cores this process may run on (its affinity, where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str | None]:
    """Returns the versions of Python, outpace and the packages it stands on; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("outpace", *PACKAGES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def _processor_name() -> str:
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def _physical_cores(cpus: Path) -> int | None:
    """Counts the distinct sets of sibling threads."""
    siblings = {
        "".join(_lines(cpu / "topology" / "thread_siblings_list")) for cpu in _entries(cpus) if _is_cpu(cpu.name)
    }
    siblings.discard("")
    return len(siblings) or None


def _is_cpu(name: str) -> bool:
    return re.fullmatch(r"cpu\d+", name) is not None


def _count(folder: Path, pattern: str) -> int | None:
    return sum(re.fullmatch(pattern, entry.name) is not None for entry in _entries(folder)) or None


def _meminfo(key: str) -> int | None:
    for line in _lines(Path("/proc/meminfo")):
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
