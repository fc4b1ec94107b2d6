"""Continuous batching: the second driver of rounds. Requests join and leave between passes.

One thread does everything that touches the model. Each turn it admits what has room, prefills one slice of one
prompt, and runs one round: every running request drafts as much as its own controller says, and one pass scores all
of it. A request's text does not depend on its neighbours, because a row's logits do not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter as clock

from outpace.api import Model
from outpace.decode import propose
from outpace.errors import OutpaceError, UsageError
from outpace.generation import Generation
from outpace.serve.job import CHUNK, DONE, FAILED, PROMPT_READ, Event, Figures, Job
from outpace.serve.log import LOGGER, ended
from outpace.serve.metrics import Metrics
from outpace.types import Draft, Scores

IDLE_SECONDS = 0.25
"""How long an idle scheduler sleeps between looks at its queue's deadlines."""


class Busy(OutpaceError):
    """The queue is full; `retry_seconds` is when a place may be free."""

    def __init__(self, waiting: int, retry_seconds: int) -> None:
        super().__init__(f"the server is at its limit: {waiting} requests are waiting; try again later")
        self.retry_seconds = retry_seconds


class ShuttingDown(OutpaceError):
    """The server finishes what it has and takes nothing new."""


class TimedOut(OutpaceError):
    """A request took longer than the server allows."""


class Cancelled(OutpaceError):
    """Whoever asked has gone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """slots: choices that run at a time. queue: choices that may wait. tokens: that open requests may hold together,
    prompt and answer, 0 for what half of the free memory has room for; in what they leave of it, prompts of ended
    requests are kept. seconds: that one may take."""

    slots: int = 16
    queue: int = 128
    tokens: int = 0
    seconds: float = 600.0

    def check_count(self, choices: int) -> None:
        """Raises UsageError for more choices in one request than run and wait together."""
        most = self.slots + self.queue
        if choices > most:
            raise UsageError(
                f"prompts times n must be at most {most}, what this server runs and queues, got {choices}"
            )


class Scheduler:
    """Runs jobs on a thread of its own. `submit`, `cancel` and `stop` may be called from any thread."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model = model
        self.limits = limits
        self._metrics = metrics
        self._wake = threading.Condition()
        self._arrived: deque[Job] = deque()  # guarded by _wake, as are the next two
        self._stopping = False
        self._abandoned = False
        self._waiting: deque[Job] = deque()
        self._opening: deque[Job] = deque()
        self._running: list[Job] = []
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="outpace-scheduler", daemon=True)

    # from any thread

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it takes and runs jobs."""
        return self._thread.is_alive() and not self._stopping

    @property
    def open(self) -> int:
        """Jobs that wait or run."""
        return len(self._arrived) + len(self._waiting) + len(self._opening) + len(self._running)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Takes all of them, or none. Raises Busy when they do not fit in the queue, ShuttingDown.

        Raises UsageError for more than the queue ever has room for.
        """
        self.limits.check_count(len(jobs))
        with self._wake:
            if self._stopping or self.fault:
                raise ShuttingDown("the server is shutting down")
            waiting = self.open - self.limits.slots
            if waiting + len(jobs) > self.limits.queue:
                self._metrics.refused.inc()
                raise Busy(max(waiting, 0), 1 + waiting // self.limits.slots)
            self._arrived.extend(jobs)
            self._wake.notify()

    def cancel(self, job: Job) -> None:
        """Ends a job before its next round."""
        job.cancelled = True

    def stop(self, grace_seconds: float) -> None:
        """Refuses new jobs, waits for the open ones, and cancels those that need longer than the grace."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(grace_seconds)
        self._abandoned = True
        self._thread.join()

    # on the scheduler's thread

    def _run(self) -> None:
        try:
            while self._collect():
                self._end_overdue()
                self._admit()
                self._prefill()
                self._round()
                self._metrics.state(len(self._waiting), len(self._opening) + len(self._running), self._held())
        except BaseException as error:
            self.fault = error
            raise
        finally:
            leaving = self.fault or ShuttingDown("the server is shutting down")
            for job in [*self._arrived, *self._waiting, *self._opening, *self._running]:
                self._fail(job, leaving)

    def _collect(self) -> bool:
        """Takes what has arrived, sleeping while there is nothing to do; returns False when it is time to end."""
        with self._wake:
            if not (self._arrived or self._waiting or self._opening or self._running):
                while not self._arrived and not self._stopping:
                    self._wake.wait(IDLE_SECONDS)
            self._waiting.extend(self._arrived)
            self._arrived.clear()
            busy = self._waiting or self._opening or self._running
            return not self._abandoned and (bool(busy) or not self._stopping)

    def _end_overdue(self) -> None:
        now = clock()
        for jobs in (self._waiting, self._opening, self._running):
            for job in [job for job in jobs if job.cancelled or job.deadline < now]:
                jobs.remove(job)
                seconds = self.limits.seconds
                late = TimedOut(f"the request took longer than {seconds:g} seconds, this server's limit")
                self._fail(job, Cancelled("cancelled") if job.cancelled else late)

    def _held(self) -> int:
        """Tokens that admitted requests may come to hold."""
        return sum(job.opening.room for job in (*self._opening, *self._running))

    def _admit(self) -> None:
        while self._waiting and len(self._opening) + len(self._running) < self.limits.slots:
            job = self._waiting[0]
            # The oldest is never overtaken, and one that is alone always fits.
            held = self._held()
            if held and held + job.opening.room > self.limits.tokens:
                break
            self._waiting.popleft()
            job.admitted = clock()
            self._opening.append(job)

    def _prefill(self) -> None:
        """One slice of one prompt; prompts take turns, so a long one does not hold up short ones."""
        if not self._opening:
            return
        job = self._opening.popleft()
        start = clock()
        try:
            generation = job.opening.step()
        except Exception as error:
            self._fail(job, error)
            return
        job.spent += clock() - start
        if generation is None:
            self._opening.append(job)
            return
        job.generation = generation
        job.began = job.last_token = clock()
        self._running.append(job)
        self._metrics.prompt(len(job.opening.ids), job.opening.reused)
        job.tell(Event(job, PROMPT_READ))

    def _round(self) -> None:
        jobs = self._running
        if not jobs:
            return
        drafts, drafting = self._drafts(jobs)
        start = clock()
        scores = self._scores(jobs, drafts)
        scoring = clock() - start
        rows = sum(1 + len(draft) for draft in drafts)
        plain = self._plain_seconds(len(jobs))
        going: list[Job] = []
        for job, draft, drafted, score in zip(jobs, drafts, drafting, scores, strict=True):
            try:
                if isinstance(score, Exception):
                    raise score
                going += self._advance(job, draft, score, drafted, scoring, rows, plain)
            except Exception as error:
                self._fail(job, error)
        self._running = going

    def _drafts(self, jobs: Sequence[Job]) -> tuple[list[Draft], list[float]]:
        """Returns each job's draft, and the seconds of its drafter's pass."""
        drafts: list[Draft] = [Draft()] * len(jobs)
        seconds = [0.0] * len(jobs)
        by_drafter: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            by_drafter.setdefault(id(job.opening.plan.drafter), []).append(i)
        for members in by_drafter.values():
            start = clock()
            rounds = [_generation(jobs[i]).round for i in members]
            found = propose(jobs[members[0]].opening.plan.drafter, rounds, len(jobs))
            spent = clock() - start
            for i, draft in zip(members, found, strict=True):
                drafts[i], seconds[i] = draft, spent
        return drafts, seconds

    def _scores(self, jobs: Sequence[Job], drafts: Sequence[Draft]) -> list[Scores | Exception]:
        """Returns each job's scores; when the shared pass fails, each is scored alone, to see whose fault it is."""
        work = [(_generation(job).round.session, draft) for job, draft in zip(jobs, drafts, strict=True)]
        try:
            return list(self.model.target.score_many(work))
        except Exception as error:
            if len(work) == 1:
                return [error]
        found: list[Scores | Exception] = []
        for job, draft in zip(jobs, drafts, strict=True):
            found += self._scores([job], [draft])
        return found

    def _advance(
        self, job: Job, draft: Draft, score: Scores, drafted: float, scored: float, rows: int, plain: float
    ) -> list[Job]:
        """Returns [job], or nothing when this round finished it."""
        generation = _generation(job)
        step = generation.round.advance(draft, score, drafted, scored, rows)
        chunk = generation.take(step)
        now = clock()
        if job.last_token == job.began:
            job.figures = Figures(first=now - job.arrived)
            self._metrics.first_token.observe(now - job.arrived)
        self._metrics.step(chunk.step, now - job.last_token)
        job.decoded += now - job.last_token
        job.plain_seconds += plain * len(step.tokens)
        job.last_token = now
        job.tell(Event(job, CHUNK, chunk=chunk, plain_seconds=plain))
        if not step.finish:
            return [job]
        self._finish(job)
        return []

    def _plain_seconds(self, load: int) -> float:
        """Returns what a plain pass over so many requests takes now, 0 while that is not known."""
        costs = self.model.costs
        return costs.plain_seconds * costs.cost(load, 0)

    def _finish(self, job: Job) -> None:
        generation = _generation(job)
        generation.close()
        result = generation.result()
        job.figures = Figures(
            waited=job.admitted - job.arrived,
            prefilled=job.spent,
            first=job.figures.first,
            decoded=job.decoded,
            plain_seconds=job.plain_seconds,
            reused=job.opening.reused,
        )
        seconds = clock() - job.arrived
        self._metrics.finished(result, seconds)
        LOGGER.info(ended(job, seconds, result, None))
        job.tell(Event(job, DONE, result=result))

    def _fail(self, job: Job, error: BaseException) -> None:
        job.close()
        self._metrics.failed(type(error).__name__)
        LOGGER.info(ended(job, clock() - job.arrived, None, error))
        job.tell(Event(job, FAILED, error=error))


def _generation(job: Job) -> Generation:
    if job.generation is None:
        raise RuntimeError("a job ran before its prompt was read")
    return job.generation
