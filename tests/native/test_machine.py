"""What the machine lets the process use."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.native import machine


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for place in ("_CGROUP", "_TOPOLOGY", "_NODES", "_DEVICES"):
        monkeypatch.setattr(machine, place, tmp_path)
    return tmp_path


def allow(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.usable_cores() >= 1
    available = machine.available_memory()
    assert available is None or available > 0


def test_a_containers_quota_bounds_the_threads(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 8)
    for quota, cores in (("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("", 8)):
        (cgroup / "cpu.max").write_text(quota)
        assert machine.usable_cores() == cores


def test_two_threads_of_a_core_count_once(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 4)
    for cpu in range(4):
        folder = cgroup / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    assert machine.usable_cores() == 2


def test_slow_cores_of_a_hybrid_do_not_count(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 8)
    for cpu, capacity in enumerate((1024, 1024, 900, 700, 400, 400, 400, 400)):
        (cgroup / f"cpu{cpu}").mkdir()
        (cgroup / f"cpu{cpu}" / "cpu_capacity").write_text(f"{capacity}\n")
    assert machine.usable_cores() == 3
    (cgroup / "cpu_core").mkdir()
    (cgroup / "cpu_core" / "cpus").write_text("0-1,3\n")
    assert machine.usable_cores() == 3
    (cgroup / "cpu_core" / "cpus").write_text("0-1\n")
    assert machine.usable_cores() == 2


def test_threads_stay_in_one_memory_node(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 12)
    for node, cpus in enumerate(("0-3", "4-11")):
        (cgroup / f"node{node}").mkdir()
        (cgroup / f"node{node}" / "cpulist").write_text(f"{cpus}\n")
    assert machine.usable_cores() == 8


def test_a_containers_limit_bounds_the_memory(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("900000\n")
    (cgroup / "memory.stat").write_text("anon 5\ninactive_file 50000\n")
    assert machine.available_memory() == 150000
