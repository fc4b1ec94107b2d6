"""Who keeps an engine: its status and signals pass through, and it does not outlive whoever wanted it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from servers import let_go

from outpace.serve import keeper

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", "import time; print('worker', flush=True); time.sleep(600)"])
worker.wait()
"""
"""An engine that will not end when asked, with a worker of its own; both hold the pipe of its standard output."""


def kept(seconds, *command):
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(seconds), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize(("ending", "status"), [("exit 3", 3), ("kill -9 $$", 128 + signal.SIGKILL)])
def test_how_it_ended_is_passed_on(ending, status):
    with kept(60, "/bin/sh", "-c", ending) as process:
        assert process.wait(60) == status


def test_a_wish_to_end_is_passed_on():
    with kept(60, "/bin/sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done") as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7


def test_without_its_parent_even_a_stubborn_one_ends_with_its_workers():
    with kept(0.2, sys.executable, "-c", STUBBORN) as process:
        assert process.stdout.readline() == b"worker\n"
        assert process.poll() is None
        process.stdin.close()
        assert let_go(process.stdout)
        assert process.wait(60) == -signal.SIGKILL
