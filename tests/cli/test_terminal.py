"""What a person sees: colours, a clean end after Ctrl-C, and nothing that a model says can steer the terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

MAIN = [sys.executable, "-c", "from outpace.cli import main; main()"]


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.master, slave = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [*MAIN, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)} | environment,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, wanted: Callable[[str], bool], seconds: float = 60) -> str:
        """Returns everything seen so far, once it is what was wanted or the command has ended."""
        end = time.monotonic() + seconds
        while not wanted(self.seen) and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the command has closed its terminal
                    break
                if not data:
                    break
                self.seen += data.decode(errors="replace")
        return self.seen

    def end(self) -> tuple[int, str]:
        """Returns the exit code and all that was seen."""
        self.read_until(lambda seen: False)
        os.close(self.master)
        try:
            return self.process.wait(timeout=10), self.seen
        finally:
            self.process.kill()
            self.process.wait()


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
LONG = ("--raw", "-t", "1", "--seed", "3", "--max-tokens", "400", "--draft-length", "3")


@pytest.fixture(autouse=True)
def _built() -> None:
    pytest.importorskip("outpace._native", reason="the native engine is not built")


def test_drafts_are_coloured_and_every_colour_is_taken_back(tiny_llama: Path) -> None:
    model = str(tiny_llama)
    code, seen = Terminal("generate", "ab", "-m", model, "--draft", model, *LONG, "--show-draft").end()
    assert code == 0
    assert "\x1b[32m" in seen
    assert seen.count("\x1b[3") == seen.count("\x1b[0m")


def test_no_color_is_honoured(tiny_llama: Path) -> None:
    code, seen = Terminal("generate", "ab", "-m", str(tiny_llama), *LONG, "--show-draft", NO_COLOR="1").end()
    assert code == 0
    assert "\x1b[3" not in seen
    assert "{accepted}  <correction>  (bonus)" in seen


def test_what_a_model_says_cannot_steer_the_terminal(tiny_llama: Path) -> None:
    code, seen = Terminal("generate", "ab", "-m", str(tiny_llama), *LONG).end()
    assert code == 0
    # The only sequence that may be there wipes the line that said the model was loading.
    assert "\x1b" not in seen.replace("\r\x1b[K", "")


def test_without_a_prompt_it_does_not_wait_at_a_terminal() -> None:
    code, seen = Terminal("generate").end()
    assert code == 2
    assert (
        seen == "outpace: error: no prompt: give one as an argument or through a pipe (outpace generate --help)\r\n"
    )


def test_a_terminal_that_is_not_utf_8_ends_nothing(tiny_llama: Path) -> None:
    code, seen = Terminal("generate", "ab", "-m", str(tiny_llama), *LONG, PYTHONIOENCODING="ascii").end()
    assert (code, "Traceback" in seen) == (0, False)


def test_ctrl_c_while_it_writes_ends_the_line_and_exits_130(tiny_llama: Path) -> None:
    model = str(tiny_llama)
    terminal = Terminal("generate", "ab", "-m", model, "--draft", model, *LONG, "--max-tokens", "480", "--show-draft")
    terminal.read_until(lambda seen: "\x1b[32m" in seen)
    os.kill(terminal.process.pid, signal.SIGINT)
    code, seen = terminal.end()
    if code == 0:
        pytest.skip("it had finished before the signal came")
    assert code == 130
    assert "Traceback" not in seen
    assert seen.endswith("\r\n")
    assert seen.count("\x1b[3") == seen.count("\x1b[0m")


def test_ctrl_c_at_the_prompt_of_a_chat_does_not_throw_the_conversation_away(tiny_llama: Path) -> None:
    terminal = Terminal("chat", "-m", str(tiny_llama))
    terminal.read_until(lambda seen: "> " in seen)
    kept = "Ctrl-D ends the conversation\r\n> "
    for _ in range(20):  # a signal that comes just before the line editor listens is only seen with the next one
        os.kill(terminal.process.pid, signal.SIGINT)
        if kept in terminal.read_until(lambda seen: kept in seen, 2):
            break
    os.write(terminal.master, b"/exit\r")
    code, seen = terminal.end()
    assert code == 0
    assert "Traceback" not in seen


def test_ctrl_c_in_a_chat_forgets_the_turn_and_goes_on(tiny_llama: Path) -> None:
    terminal = Terminal("chat", "-m", str(tiny_llama), "-t", "1", "--seed", "3", "--max-tokens", "400")
    terminal.read_until(lambda seen: "> " in seen)
    os.write(terminal.master, b"ab\r")
    before = len(terminal.read_until(lambda seen: "ab\r\n" in seen))
    terminal.read_until(lambda seen: len(seen) > before + 20)
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.read_until(lambda seen: "stopped" in seen or "tokens/s" in seen)
    os.write(terminal.master, b"/exit\r")
    code, seen = terminal.end()
    assert code == 0
    assert "Traceback" not in seen
