"""Keeps another engine's server alive: starts it, knows when it answers, starts it anew when it ends, and ends it.

Between the two stands `keeper.py`, which ends the engine when this process is killed and can do so no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

import httpx

from outpace.errors import OutpaceError
from outpace.serve import keeper
from outpace.serve.log import LOGGER

LOOK_SECONDS, READY_LOOK_SECONDS = 0.25, 2.0
"""Between looks at whether the engine answers, before it does and after: it writes a line for each."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Before a further start; each failed one doubles the pause."""

MOST_STARTS = 3
"""Starts of which none came to answer, after which it is given up: more of the same will not help."""

ORPHAN_SECONDS = 10.0
"""For an engine to end by itself when this process was killed."""


class EngineFailed(OutpaceError):
    """The engine's process ended again and again before it answered."""


class Supervisor:
    """One engine process.

    command: what starts it. url: where it listens. pause: seconds before a second start. on_give_up: called when it
    does not start at all. ready: whether it answers. restarts: starts after the first. fault: why it was given up.
    """

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        *,
        pause: float = FIRST_PAUSE,
        on_give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.command = tuple(command)
        self.url = url
        self.on_give_up = on_give_up
        self.ready = False
        self.restarts = 0
        self.fault: EngineFailed | None = None
        self._first_pause = pause
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._answered = False
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to keep it alive; called on the event loop."""
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self, grace_seconds: float) -> None:
        """Ends it: it is asked to, and its processes are killed when the grace is over."""
        self._stopping = True
        self.ready = False
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_seconds)
            _kill_group(process.pid)
            await process.wait()
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping

    async def _keep(self) -> None:
        pause, failed = self._first_pause, 0
        while True:
            # In a session of its own: an interrupt at the terminal must not end it while requests drain.
            process = await asyncio.create_subprocess_exec(
                *self._kept_command(), stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            self._process, self._answered = process, False
            looking = asyncio.create_task(self._look())
            code = await process.wait()
            looking.cancel()
            answered, self.ready = self._answered, False
            _kill_group(process.pid)  # workers that outlive it would hold the devices
            if self._stopping:
                return
            LOGGER.warning({"event": "engine ended", "status": code, "answered": answered})
            failed = 0 if answered else failed + 1
            if failed == MOST_STARTS:
                self.fault = EngineFailed(
                    f"{self.command[0]} ended {failed} times before it answered, the last time with status {code}: "
                    "its own messages say why"
                )
                self.on_give_up()
                return
            pause = self._first_pause if answered else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.restarts += 1

    def _kept_command(self) -> list[str]:
        """Returns the command under its keeper, which needs neither our packages nor our environment."""
        return [sys.executable, "-I", "-S", keeper.__file__, f"{ORPHAN_SECONDS:g}", *self.command]

    async def _look(self) -> None:
        """Sets `ready` as soon as the engine answers, and while it does."""
        async with httpx.AsyncClient(base_url=self.url, timeout=10, trust_env=False) as client:
            while True:
                try:
                    self.ready = (await client.get("/health")).status_code == 200
                    self._answered = self._answered or self.ready
                except httpx.HTTPError:
                    self.ready = False
                await asyncio.sleep(READY_LOOK_SECONDS if self.ready else LOOK_SECONDS)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
