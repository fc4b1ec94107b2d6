"""A request before its first round: its prompt is prefilled in slices, between other requests' rounds."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol, TypeAlias, runtime_checkable

from outpace.generation import Generation
from outpace.options import Options, Plan
from outpace.types import Context, Prompt, Target, TargetSession

Opened: TypeAlias = tuple[TargetSession, Context]


@runtime_checkable
class SlicedTarget(Protocol):
    """A target that can prefill a prompt in slices."""

    def opening(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> Generator[int, None, Opened]:
        """Yields how many tokens are cached, first those of a kept prefix; returns what `Target.open` returns.

        Raises as `Target.open` does, at the first step.
        """
        ...


class Opening:
    """Call `step` until it returns the generation.

    ids: the prompt's. plan, options: what was asked for. reused: tokens of the prompt that were cached already.
    """

    def __init__(
        self,
        target: Target,
        ids: tuple[int, ...],
        plan: Plan,
        options: Options,
        begin: Callable[[Opened], Generation],
    ) -> None:
        self.ids = ids
        self.plan = plan
        self.options = options
        self.reused = 0
        self._begin = begin
        self._longest: int = target.max_length
        self._slices = _slices(target, Prompt(ids), plan.drafter.taps)
        self._begun = False

    @property
    def room(self) -> int:
        """Tokens that the request may come to hold, prompt and answer together: no more than the context."""
        return min(len(self.ids) + self.options.max_tokens, self._longest)

    def step(self) -> Generation | None:
        """Prefills one slice; returns the generation when the whole prompt is cached. Raises as `Target.open`."""
        try:
            cached = next(self._slices)
        except StopIteration as end:
            return self._begin(end.value)
        if not self._begun:
            self.reused, self._begun = cached, True
        return None

    def close(self) -> None:
        """Gives up what was prefilled."""
        self._slices.close()


def _slices(target: Target, prompt: Prompt, taps: tuple[int, ...]) -> Generator[int, None, Opened]:
    if isinstance(target, SlicedTarget):
        return (yield from target.opening(prompt, taps))
    return target.open(prompt, taps)
