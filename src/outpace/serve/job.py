"""One choice of one request on its way through the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter as clock

from outpace.generation import Generation
from outpace.opening import Opening
from outpace.result import Chunk, Result

PROMPT_READ, CHUNK, DONE, FAILED = "prompt read", "chunk", "done", "failed"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a finished choice cost. Seconds: `waited` for a place, `prefilled`, to the `first` token, in all rounds.

    plain_seconds: what plain decoding of the same tokens would have taken under the same load, by measured passes; 0
    where no plain pass was measured. reused: tokens of the prompt that were cached.
    """

    waited: float = 0.0
    prefilled: float = 0.0
    first: float = 0.0
    decoded: float = 0.0
    plain_seconds: float = 0.0
    reused: int = 0

    @property
    def speed_up(self) -> float | None:
        """How many times as fast as plain decoding this choice was."""
        return self.plain_seconds / self.decoded if self.plain_seconds and self.decoded else None


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a job; exactly one of a chunk, a result with its figures, or an error, by `kind`.

    plain_seconds: with a chunk, what plain decoding takes for a token under this load, 0 while that is not known.
    """

    job: Job
    kind: str
    chunk: Chunk | None = None
    result: Result | None = None
    error: BaseException | None = None
    plain_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Job:
    """One choice. The scheduler's thread owns it but for `cancelled`, which anyone may set.

    index: the choice's place in its response. tell: hears of each Event, on the scheduler's thread. deadline: by
    `perf_counter`, after which it fails.
    """

    opening: Opening
    tell: Callable[[Event], None]
    index: int = 0
    deadline: float = float("inf")
    cancelled: bool = False
    generation: Generation | None = None
    figures: Figures = field(default_factory=Figures)
    arrived: float = field(default_factory=clock)
    admitted: float = 0.0
    began: float = 0.0
    last_token: float = 0.0
    decoded: float = 0.0
    plain_seconds: float = 0.0
    spent: float = 0.0  # in prefill slices

    def close(self) -> None:
        """Gives its caches back, wherever it stands."""
        self.opening.close()
        if self.generation is not None:
            self.generation.close()
