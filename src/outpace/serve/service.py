"""Requests as jobs: from a checked body to a stream of events, on the event loop's side."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter as clock
from typing import Any, Protocol, runtime_checkable

from starlette.concurrency import run_in_threadpool

from outpace.api import Model
from outpace.errors import OutpaceError
from outpace.native.machine import available_memory
from outpace.opening import Opening
from outpace.registry import DRAFTERS
from outpace.result import Result
from outpace.serve.errors import ApiError
from outpace.serve.job import CHUNK, DONE, FAILED, PROMPT_READ, Event, Figures, Job
from outpace.serve.metrics import Metrics
from outpace.serve.scheduler import Scheduler
from outpace.serve.schema import ChatRequest, CompletionRequest
from outpace.serve.settings import Settings


@runtime_checkable
class Holding(Protocol):
    """A target that keeps prompts of ended requests while there is room."""

    kv_bytes_per_token: int

    def hold(self, cache_tokens: int) -> None:
        """Sets how many tokens it holds at most, those of open requests included."""
        ...


@dataclass(slots=True)
class Service:
    """One model behind an API."""

    model: Model
    settings: Settings
    metrics: Metrics
    scheduler: Scheduler

    @staticmethod
    def of(model: Model, settings: Settings) -> Service:
        """Returns the service of a loaded model. Raises UsageError for settings out of range."""
        settings.check()
        limits = settings.limits
        if not limits.tokens:
            limits = replace(limits, tokens=_affordable_tokens(model, limits.slots))
        for holding in _holding(model):
            holding.hold(limits.tokens)
        model.check()  # reads the stores that drafts come from, for which the first request would wait
        metrics = Metrics()
        return Service(model, settings, metrics, Scheduler(model, limits, metrics))

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.settings.names[0] if self.settings.names else self.model.target.name

    def drafters(self) -> list[str]:
        """Returns what a request may name to draft: what fits the model and what is loaded beside it.

        Not "quantized": no request can make a server load a second copy of the model.
        """
        return [name for name in DRAFTERS.names() if name not in ("none", "quantized") and self._drafts(name)]

    def _drafts(self, name: str) -> bool:
        try:
            self.model.check(drafter=name)
        except (OutpaceError, ImportError):
            return False
        return True

    def check_model(self, asked: str) -> None:
        """Raises ApiError for a model that is not served here."""
        if asked not in (self.name, *self.settings.names):
            raise ApiError(
                404, f"this server runs {self.name!r}, not {asked!r}", param="model", code="model_not_found"
            )

    async def open_chat(self, request: ChatRequest) -> list[Opening]:
        """Returns the choices of a chat completion. Raises ApiError or OutpaceError for what cannot be done."""
        messages = [message.plain() for message in request.messages]
        return await run_in_threadpool(self._choices, {"prompt": messages}, request.options())

    async def open_text(self, request: CompletionRequest) -> list[Opening]:
        """Returns the choices of a text completion, prompt by prompt."""
        found: list[Opening] = []
        prompts = request.prompts()
        self.scheduler.limits.check_count(len(prompts))  # before any of them is tokenised
        for prompt in prompts:
            given: dict[str, Any] = {"prompt": prompt, "raw": True} if isinstance(prompt, str) else {"ids": prompt}
            found += await run_in_threadpool(self._choices, given, request.options())
        return found

    def _choices(self, given: dict[str, Any], options: dict[str, Any]) -> list[Opening]:
        n = options.get("n", 1)
        if n > 1:
            options.setdefault("seed", secrets.randbits(32))  # one seed, of which each choice has its own noise
        options.setdefault("max_tokens", self.model.target.max_length)
        first = self.model.opening(**given, **options)
        options["n"] = 1
        others = [self.model.opening(ids=first.ids, choice=i, **options) for i in range(1, n)]
        return [first, *others]

    def run(self, openings: Sequence[Opening], streamed: bool) -> Running:
        """Hands the choices to the scheduler. Raises UsageError for too many of them, Busy or ShuttingDown."""
        return Running(self.scheduler, openings, clock() + self.settings.limits.seconds, streamed)


def _holding(model: Model) -> list[Holding]:
    """Returns the target, and the draft model, which reads the same prompts."""
    models: tuple[object, ...] = (model.target, model.draft)
    return [one for one in models if isinstance(one, Holding)]


def _affordable_tokens(model: Model, slots: int) -> int:
    """Returns how many tokens may be held: what half of the free memory has room for."""
    context: int = model.target.max_length
    free = available_memory()
    token_bytes = sum(one.kv_bytes_per_token for one in _holding(model))
    if not free or not token_bytes:
        return slots * context
    return int(max(context, min(slots * context, free // 2 // token_bytes)))


class Running:
    """The choices of one request while they run; iterate for their events, and close whatever happens.

    streamed: without it there are only events that end a choice: a wake-up a round costs the passes time.
    """

    def __init__(
        self, scheduler: Scheduler, openings: Sequence[Opening], deadline: float, streamed: bool = True
    ) -> None:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def tell(event: Event) -> None:
            if not streamed and event.kind in (PROMPT_READ, CHUNK):
                return
            # The loop is gone when the server has been torn down under us: nobody listens then.
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._scheduler = scheduler
        self._events = events
        self._jobs = [Job(opening, tell, i, deadline) for i, opening in enumerate(openings)]
        self._left = len(self._jobs)
        self._results: dict[int, Result] = {}
        self.ended = False
        self.watch: asyncio.Task[None] | None = None
        scheduler.submit(self._jobs)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._each()

    async def _each(self) -> AsyncIterator[Event]:
        while self._left:
            event = await self._events.get()
            if event.kind == FAILED and event.error is not None:
                self.close()
                raise event.error
            if event.kind == DONE and event.result is not None:
                self._left -= 1
                self._results[event.job.index] = event.result
            yield event
        self.ended = True

    @property
    def results(self) -> list[Result]:
        """Those of all choices, once the events have ended."""
        return [self._results[i] for i in range(len(self._jobs))]

    @property
    def figures(self) -> list[Figures]:
        return [job.figures for job in self._jobs]

    def close(self) -> None:
        """Cancels what still runs."""
        self.ended = True
        for job in self._jobs:
            self._scheduler.cancel(job)
