"""What this machine is: processor, memory, versions. Read from the system, never guessed."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from outpace.errors import UsageError
from outpace.native.machine import available_memory, usable_cores

PACKAGES = ("numpy", "tokenizers", "jinja2", "typer", "rich")
"""The packages whose versions a report of a fault should carry."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor and its memory; None where the system does not say.

    threads: how many outpace uses unless told otherwise, see native.machine.usable_cores.
    """

    processor: str
    architecture: str
    logical_cores: int
    physical_cores: int | None
    numa_nodes: int | None
    threads: int
    memory_bytes: int | None
    available_bytes: int | None


@dataclass(frozen=True, slots=True)
class Engine:
    """The native engine: processor features that matter to it, kernels that can run (best first), the chosen ones."""

    features: tuple[str, ...]
    kernels: tuple[str, ...]
    chosen: str


def describe() -> Machine:
    """Returns the machine that this process runs on."""
    return Machine(
        processor=_processor_name(),
        architecture=platform.machine(),
        logical_cores=os.cpu_count() or 1,
        physical_cores=_physical_cores(Path("/sys/devices/system/cpu")),
        numa_nodes=_count(Path("/sys/devices/system/node"), r"node\d+"),
        threads=usable_cores(),
        memory_bytes=_meminfo("MemTotal"),
        available_bytes=available_memory(),
    )


def engine() -> Engine | None:
    """Returns what the native engine makes of this processor; None where it was not built.

    Raises UsageError when OUTPACE_KERNEL asks for kernels that cannot run here.
    """
    try:
        from outpace import _native
    except ImportError:
        return None
    try:
        chosen = _native.chosen_kernel()
    except ValueError as error:
        raise UsageError(f"OUTPACE_KERNEL: {error}") from None
    return Engine(tuple(_native.cpu_features()), tuple(_native.kernels()), chosen)


class NativeCeilings:
    """What the machine allows the native engine, measured now by `threads` threads."""

    def __init__(self, threads: int) -> None:
        from outpace import _native

        self._native = _native
        self._threads = threads

    def bandwidth(self) -> float:
        """Returns the bytes/s that a plain sum reads from memory."""
        return self._native.measure_bandwidth(self._threads)

    def integer_rate(self, *, wide: bool = False) -> float:
        """Returns 8-bit integer multiply-adds/s; wide: with codes of all 8 bits."""
        return self._native.measure_integer_rate(self._threads, wide=wide)


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
