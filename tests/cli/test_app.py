"""How commands end: one line on stderr, and an exit code that says whose fault it was."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from outpace.cli import app as application
from outpace.cli.app import app
from outpace.errors import BadModelFile, ModelNotFound, OutpaceError, UsageError

RUN = [sys.executable, "-c", "from outpace.cli import main; main()"]


@pytest.mark.parametrize("arguments", [["explain", "--seed", "x7"], ["generate", "ab", "--temperature", "x7"]])
def test_a_value_that_is_no_number_is_named(arguments: list[str]) -> None:
    assert "'x7'" in CliRunner().invoke(app, arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "--nonsense"], "No such option: --nonsense"),
        (["fly"], "No such command 'fly' (see outpace --help)"),
        (["explain", "--seed", "x"], "Invalid value for '--seed': "),
        (["explain", "--p", "a,b"], "p must be probabilities between commas, as 0.5,0.3,0.2, got 'a,b'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith(f"outpace: error: {message}")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("top_p must be in (0, 1], got 1.3"), 2, "top_p must be in (0, 1], got 1.3"),
        (ModelNotFound("no model\nof that name"), 2, r"no model\nof that name"),
        (BadModelFile("model.gguf: truncated"), 1, "model.gguf: truncated"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "/x/y: Permission denied"),
        (MemoryError(), 1, "out of memory"),
    ],
)
def test_whose_fault_it_was_decides_the_exit_code(
    error: Exception, code: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.explain.explain", raising(error))
    result = CliRunner().invoke(app, ["explain"])
    assert (result.exit_code, result.stderr) == (code, f"outpace: error: {line}\n")


def raising(error: BaseException):  # type: ignore[no-untyped-def]
    def run(*arguments: object, **options: object) -> None:
        raise error

    return run


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.explain.explain", raising(ZeroDivisionError("ours")))
    assert isinstance(CliRunner().invoke(app, ["explain"]).exception, ZeroDivisionError)


def test_ctrl_c_is_exit_130_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.explain.explain", raising(KeyboardInterrupt()))
    result = CliRunner().invoke(app, ["explain"])
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_a_reader_that_leaves_is_quiet() -> None:
    command = " ".join(f"'{word}'" for word in [*RUN, "explain", "--rounds", "3000", "--samples", "1"])
    script = f"{command} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (f"{application.BROKEN_PIPE}\n", "")


@pytest.mark.parametrize(
    ("closed", "command", "code", "said"),
    [
        (">&-", ["explain", "--rounds", "1", "--samples", "1"], 0, ""),
        (">&-", ["explain", "--samples", "1", "--json"], 0, ""),
        (">&-", ["--version"], 0, ""),
        (">&-", ["explain", "--samples", "0"], 2, "outpace: error: samples must be in [1, 10000000], got 0\n"),
        ("2>&-", ["explain", "--samples", "0"], 2, ""),
        ("<&-", ["generate"], 2, "outpace: error: the prompt is empty\n"),
    ],
)
def test_a_stream_that_was_closed_is_nothing_to_read_or_write(
    closed: str, command: list[str], code: int, said: str
) -> None:
    words = " ".join(f"'{word}'" for word in [*RUN, *command])
    done = subprocess.run(
        ["bash", "-c", f"{words} {closed}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_every_mistake_is_an_error_of_ours() -> None:
    assert all(issubclass(kind, OutpaceError) for kind in application._MISTAKES)


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("outpace")


def test_without_a_command_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "generate" in result.output


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from outpace.cli.app import app; app(['--help'], standalone_mode=False); "
        "heavy = {'numpy', 'tokenizers', 'jinja2', 'outpace._native', 'outpace.api', 'outpace.model'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
