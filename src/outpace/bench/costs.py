"""What rounds cost on this machine: by rows, and with a draft model's passes between the target's, as they occur.

Rounds are those of the real loop, but what they score is arbitrary: all that a round does is in its seconds, as
cold as it is in decoding, and nothing that a drafter would have guessed is decoded. A draft model does all its work
there; only its tokens are replaced.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from time import perf_counter as clock
from typing import TYPE_CHECKING, TypeAlias, cast

from outpace.control import FixedController
from outpace.errors import UsageError
from outpace.generation import Generation
from outpace.theory.costs import SecondsByRows, measured
from outpace.types import Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt, Scores, Step

if TYPE_CHECKING:
    from outpace.api import Model

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32)
FIRST_ROUNDS, PROBES, PROBED = 2, 8, 4
"""Rounds of an answer that are not counted, for prefill left other caches than decoding finds; those that are; and
prompts that take turns."""

Kind: TypeAlias = tuple[str, int]
"""(drafter, "" for none; rows of the target's pass)."""


class Costs:
    """Seconds of rounds less drafting, by rows; drafted: the same and the drafting, of drafters that run a model."""

    def __init__(
        self, seconds_at: Mapping[int, float], drafted: Mapping[Kind, tuple[float, float]] | None = None
    ) -> None:
        self.seconds_at = dict(seconds_at)
        self.drafted = dict(drafted or {})
        self.score: SecondsByRows = measured(sorted(seconds_at.items()))

    @property
    def most_rows(self) -> int:
        return max(self.seconds_at)

    def step(self, drafter: str, rows: int, drafting: float, begins: bool = False) -> float:
        """Returns the seconds of a round with a draft of `rows` - 1 tokens.

        drafting: its drafter's seconds alone. They count where the drafter runs no model, or `begins` and reads the
        prompt; otherwise what drafting takes between two passes of the target does.
        """
        scoring, between = self.drafted.get((drafter, rows), (self.score(rows), drafting))
        return scoring + (max(drafting, between) if begins else between)

    def speedup_at(self, load: int, tokens_per_step: float, length: int, draft_seconds: float) -> float | None:
        """Returns the predicted speed-up of `load` requests that share every pass; None beyond the measured rows.

        draft_seconds: of a step; a draft's passes are shared as well and taken to cost the same.
        """
        rows = load * (1 + length)
        if rows > self.most_rows:
            return None
        return tokens_per_step * self.score(load) / (self.score(rows) + draft_seconds)


class Samples:
    """Rounds timed so far; more may be taken at any time, since machines change while they are measured.

    drafters: those that run a model, each timed with drafts of `lengths`. Raises UsageError when the context is too
    short.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[str],
        rows: Sequence[int] = ROWS,
        drafters: Sequence[str] = (),
        lengths: Sequence[int] = (),
    ) -> None:
        self._model, self._prompts = model, prompts[:PROBED]
        self._kinds: list[Kind] = [("", count) for count in rows]
        self._kinds += [(name, 1 + length) for name in drafters for length in lengths]
        self._scoring: dict[Kind, list[float]] = defaultdict(list)
        self._drafting: dict[Kind, list[float]] = defaultdict(list)
        self.plain: list[float] = []  # of one row, by turn of `take`

    def take(self, seconds: float, most_rows: int | None = None) -> None:
        """Times rounds for so long, and every kind at least once; kinds of more rows than `most_rows` are left out.

        An answer keeps to one number of rows, as decoding with drafts mostly does: a narrow pass after a wide one
        takes longer than after a narrow one.
        """
        kinds = [kind for kind in self._kinds if most_rows is None or kind[1] <= most_rows]
        before, begin = len(self._scoring["", 1]), clock()
        for turn, prompt in enumerate(cycle(self._prompts)):
            for kind in kinds if turn % 2 else reversed(kinds):
                for scoring, drafting in _probed(self._model, prompt, *kind):
                    self._scoring[kind].append(scoring)
                    self._drafting[kind].append(drafting)
            if clock() - begin >= seconds:
                break
        absent = [rows for name, rows in kinds if not name and not self._scoring["", rows]]
        if absent:
            raise UsageError(f"there is no room to measure {absent[-1]} rows: set a larger --context")
        self.plain.append(_trimmed(self._scoring["", 1][before:]))

    def costs(self) -> Costs:
        """Returns trimmed means over all rounds so far."""
        scoring = {kind: _trimmed(self._scoring[kind]) for kind in self._kinds if self._scoring[kind]}
        drafted = {kind: (seconds, _trimmed(self._drafting[kind])) for kind, seconds in scoring.items() if kind[0]}
        return Costs({rows: seconds for (name, rows), seconds in scoring.items() if not name}, drafted)


def _probed(model: Model, prompt: str, drafter: str, rows: int) -> Iterator[tuple[float, float]]:
    """Yields (seconds less drafting, of drafting) of PROBES rounds after the first ones of an answer."""
    # Room for the last draft too; each round may commit more than one token by luck.
    max_tokens = 2 * (FIRST_ROUNDS + PROBES) + rows
    opened = model.stream(prompt, drafter=drafter or "none", max_tokens=max_tokens)
    ids = tuple(opened.round.committed)
    probe = Probe(opened.plan.drafter if drafter else None)
    plan = replace(opened.plan, drafter=probe, controller=FixedController(rows - 1), endings=frozenset())
    opened.close()
    probing = Generation(
        model.target, model.text, ids, plan, max_tokens=max_tokens, stop=(), observer=None, load_seconds=0.0
    )
    before = clock()
    for place, chunk in enumerate(probing):
        now = clock()
        if place >= FIRST_ROUNDS and len(chunk.step.draft) == rows - 1:
            yield now - before - chunk.step.seconds.draft, chunk.step.seconds.draft
        if place >= FIRST_ROUNDS + PROBES:
            break
        before = clock()
    probing.close()


def _trimmed(values: Sequence[float]) -> float:
    """Returns the mean less the tenth at either end: what another process took is no cost of ours."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


class Probe:
    """A Drafter of arbitrary tokens, as many as are asked for. inner: a drafter that does its work beside it."""

    name = "probe"
    vocab_size = 0
    drafts_trees = False
    self_limiting = False
    weight_bytes = 0

    def __init__(self, inner: Drafter | None = None) -> None:
        self._inner = inner
        self.taps: tuple[int, ...] = inner.taps if inner else ()

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> ProbeSession:
        return ProbeSession(prompt.ids, self._inner.open(prompt, context, laws) if self._inner else None)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        """Returns a chain for each; of the prompt's own tokens, in an order that nobody would say."""
        own = cast("Sequence[tuple[ProbeSession, Budget]]", work)
        counts = [budget.depth for _, budget in own]
        if self._inner:
            asked = [(cast(DraftSession, session.inner), budget) for session, budget in own]
            counts = [len(draft) for draft in self._inner.propose_many(asked)]
        return [
            Draft.chain([session.ids[-1 - i % len(session.ids)] for i in range(count)])
            for (session, _), count in zip(own, counts, strict=True)
        ]


class ProbeSession:
    """The prompt, and the session of the drafter that works beside it."""

    def __init__(self, ids: Sequence[int], inner: DraftSession | None) -> None:
        self.ids = ids
        self.inner = inner

    def observe(self, step: Step, scores: Scores) -> None:
        if self.inner:
            self.inner.observe(step, scores)

    def close(self) -> None:
        if self.inner:
            self.inner.close()
