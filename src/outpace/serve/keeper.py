"""Runs a command, and ends it when whoever started this has gone, however it went.

    python keeper.py SECONDS COMMAND [WORD ...]

Standard input is a pipe that the parent holds and never writes to: the kernel closes it when the parent ends, killed
or not, which is the only thing that every system tells of a parent's death. Then the command is asked to end, and
SECONDS later all processes of the group are killed, this one with them. A SIGTERM is passed on. The exit status is
the command's, 128 + N where signal N ended it. Imports nothing of ours, so that it starts at once and stays small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> int:
    """Returns the command's exit status."""
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    # Held back until it can be passed on; the command itself starts with it let through.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_let_through)
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    _let_through()
    orphaned = threading.Event()
    threading.Thread(target=_watch, args=(running.pid, seconds, orphaned), daemon=True).start()
    code = running.wait()
    if orphaned.is_set():
        _kill_group()  # workers that outlive it would hold the devices
    return code if code >= 0 else 128 - code


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _watch(pid: int, seconds: float, orphaned: threading.Event) -> None:
    while os.read(0, 1):
        pass
    orphaned.set()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    time.sleep(seconds)
    _kill_group()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
