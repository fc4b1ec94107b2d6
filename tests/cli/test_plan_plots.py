"""The pictures of `outpace plan --plots`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.app import app

PAIR = ["plan", "--target", "llama-3.1-8b", "--device", "h100", "--concurrency", "1,32"]
NUMBERS = ["plan", "--acceptance", "0.8", "--cost", "0.05"]


@pytest.mark.parametrize(
    ("command", "names"),
    [(PAIR, ["memory.png", "speedup-by-length.png", "speedup-by-load.png"]), (NUMBERS, ["speedup-by-length.png"])],
    ids=["target", "numbers"],
)
def test_pictures_are_written_and_named(command: list[str], names: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    folder = tmp_path / "pictures"
    result = CliRunner().invoke(app, [*command, "--plots", str(folder)])
    assert result.exit_code == 0, result.stderr
    assert sorted(file.name for file in folder.iterdir()) == names
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in folder.iterdir())
    assert all(name in result.stderr for name in names)


def test_a_missing_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(app, [*NUMBERS, "--plots", str(tmp_path)])
    assert result.exit_code != 0
    assert result.stderr.count("\n") == 1
    assert "outpace[plots]" in result.stderr
