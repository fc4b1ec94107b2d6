"""`outpace chat`: each line a turn, and what the commands do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

Run = Callable[..., Result]
FAST = ("--max-tokens", "8", "--draft-length", "2")


def talk(run: Run, *lines: str) -> Result:
    return run("chat", *FAST, input="".join(line + "\n" for line in lines))


def test_each_line_is_a_turn(run: Run) -> None:
    result = talk(run, "ab", "", "cd")
    assert result.exit_code == 0
    assert len([line for line in result.stderr.splitlines() if "tokens/s" in line]) == 2


def test_a_turn_depends_on_those_before_it_and_a_reset_forgets_them(run: Run) -> None:
    whole = talk(run, "ab").stdout
    assert talk(run, "zz", "/reset", "ab").stdout.endswith(whole)
    assert "a new conversation" in talk(run, "/reset").stderr


def test_exit_ends_it(run: Run) -> None:
    assert talk(run, "/exit", "ab").stdout == ""


def test_an_unknown_command_is_not_sent_to_the_model(run: Run) -> None:
    result = talk(run, "/quit")
    assert result.stdout == ""
    assert result.stderr.startswith("outpace: error: unknown command /quit: /reset begins anew")


def test_a_script_that_overflows_the_context_fails(run: Run) -> None:
    result = talk(run, "ab " * 600)
    assert result.exit_code == 2
    assert "the context holds 512" in result.stderr


@pytest.mark.parametrize("message", [b"\xff", "a\N{KEY}".encode()[:-1]])
def test_a_message_that_is_not_utf8_is_one_line(run: Run, message: bytes) -> None:
    result = run("chat", *FAST, input=message + b"\n")
    assert result.exit_code == 2
    assert result.stderr.startswith("outpace: error: a message is not UTF-8: invalid")
    assert result.stderr.count("\n") == 1


def test_wrong_options_are_refused_before_the_first_message(run: Run) -> None:
    result = run("chat", "--top-p", "1.5", input="")
    assert result.exit_code == 2
    assert "top_p must be in (0, 1], got 1.5" in result.stderr
