"""What the machine says of itself."""

from __future__ import annotations

from pathlib import Path

from outpace.bench import machine


def test_the_description_is_consistent() -> None:
    found = machine.describe()
    assert 1 <= found.threads <= found.logical_cores
    assert found.physical_cores is None or 1 <= found.physical_cores <= found.logical_cores
    assert found.memory_bytes is None or found.available_bytes is None or found.available_bytes <= found.memory_bytes


def test_physical_cores_are_the_distinct_sets_of_siblings(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    (tmp_path / "cpufreq").mkdir()
    assert machine._physical_cores(tmp_path) == 2


def test_what_the_system_does_not_say_is_none(tmp_path: Path) -> None:
    assert machine._physical_cores(tmp_path / "absent") is None


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert machine.versions()["numpy"]
    assert set(machine.versions()) == {"python", "outpace", *machine.PACKAGES}
