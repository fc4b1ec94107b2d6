"""What the machine lets the process use."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.native import machine


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    return tmp_path


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.usable_cores() >= 1
    available = machine.available_memory()
    assert available is None or available > 0


def test_a_containers_quota_bounds_the_threads(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TOPOLOGY", cgroup)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for quota, cores in (("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("", 8)):
        (cgroup / "cpu.max").write_text(quota)
        assert machine.usable_cores() == cores


def test_two_threads_of_a_core_count_once(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TOPOLOGY", cgroup)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for cpu in range(4):
        folder = cgroup / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    assert machine.usable_cores() == 2


def test_a_containers_limit_bounds_the_memory(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("900000\n")
    (cgroup / "memory.stat").write_text("anon 5\ninactive_file 50000\n")
    assert machine.available_memory() == 150000
