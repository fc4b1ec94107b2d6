"""What a server is set up with: refused by name where it is out of range, before a model is loaded."""

from __future__ import annotations

import math
import sys
from subprocess import run

import pytest
from refusals import refused

from outpace.errors import UsageError
from outpace.serve.scheduler import Limits
from outpace.serve.settings import Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(port=65536), "port must be in [0, 65536), got 65536"),
        (Settings(limits=Limits(slots=0)), "slots must be at least 1, got 0"),
        (Settings(limits=Limits(queue=-1)), "queue must be at least 0, got -1"),
        (Settings(limits=Limits(tokens=-1)), "tokens must be at least 0, got -1"),
        (Settings(limits=Limits(seconds=0)), "request seconds must be in (0, 1e+09], got 0"),
        (Settings(limits=Limits(seconds=math.nan)), "request seconds must be in (0, 1e+09], got nan"),
        (Settings(limits=Limits(seconds=math.inf)), "request seconds must be in (0, 1e+09], got inf"),
        (Settings(grace_seconds=-1), "grace seconds must be in [0, 1e+09], got -1"),
        (Settings(grace_seconds=math.nan), "grace seconds must be in [0, 1e+09], got nan"),
        (Settings(api_key=""), "an API key travels in an HTTP header and must be ASCII, and not empty"),
        (Settings(api_key="\N{KEY}"), "an API key travels in an HTTP header and must be ASCII, and not empty"),
        (Settings(names=("a", "")), "a name that requests call the model by must not be empty"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: Settings, message: str) -> None:
    with refused(UsageError, message):
        settings.check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cache-tokens", "0"], "--cache-tokens must be at least 1, got 0"),
        (["--cache-tokens", "-1"], "--cache-tokens must be at least 1, got -1"),
        (["--body-megabytes", "0"], "--body-megabytes must be at least 1, got 0"),
        (["--request-seconds", "nan"], "request seconds must be in (0, 1e+09], got nan"),
        (["--devices", "2"], "--devices is for --engine vllm, got --engine auto: leave it out"),
        (["--vllm-option", "x"], "--vllm-option is for --engine vllm, got --engine auto: leave it out"),
        (
            ["--engine", "vllm", "--slots", "4"],
            "--slots is for our own engines, got --engine vllm: say it by --vllm-option",
        ),
        (
            ["--engine", "vllm", "--threads", "4"],
            "--threads is for our own engines, got --engine vllm: say it by --vllm-option",
        ),
    ],
)
def test_the_command_refuses_it_in_one_line(options: list[str], message: str) -> None:
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--model", "none", *options]
    done = run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (2, f"outpace: error: {message}\n")
