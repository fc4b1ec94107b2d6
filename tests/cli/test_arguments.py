"""What options say together, checked before anything is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import refused
from typer.testing import CliRunner

from outpace.cli.app import app
from outpace.cli.arguments import output_file
from outpace.errors import UsageError


def test_a_file_that_could_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    output_file("--out", tmp_path / "new.json")
    with refused(UsageError, f"--out {tmp_path} is a folder: name a file"):
        output_file("--out", tmp_path)
    with refused(UsageError, f"--out {tmp_path}/none/x.json: there is no folder {tmp_path}/none"):
        output_file("--out", tmp_path / "none" / "x.json")


def test_so_is_one_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with refused(UsageError, f"--out {tmp_path}/x cannot be written: no permission"):
        output_file("--out", tmp_path / "x")


def test_and_one_on_a_file_system_that_takes_no_files() -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    with pytest.raises(UsageError, match=r"^--out /proc/x cannot be written: "):
        output_file("--out", "/proc/x")


def test_a_device_is_no_file_that_another_may_take_the_place_of() -> None:
    with refused(UsageError, f"--out {os.devnull} is no ordinary file: name one"):
        output_file("--out", os.devnull)


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    output_file("--out", tmp_path / "new.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["generate", "ab", "--trace={}.html"], "--trace"),
        (["audit", "rules", "--html", "{}.html"], "--html"),
        (["train", "eagle", "--data", ".", "--out", "{}.html"], "--out"),
        (["train", "distill", "--draft", "d.gguf", "--data", ".", "--out", "{}.html"], "--out"),
        (["draft", "make", "--from", "a", "--for", "b", "--out", "{}.html"], "--out"),
    ],
)
def test_every_long_command_looks_first(tmp_path: Path, command: list[str], option: str) -> None:
    folder = tmp_path / "taken.html"
    folder.mkdir()
    words = [word.format(tmp_path / "taken") for word in command]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stderr) == (2, f"outpace: error: {option} {folder} is a folder: name a file\n")
