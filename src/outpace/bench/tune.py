"""Which drafter and length pay on this machine with these prompts: costs measured, steps replayed, then checked.

    predicted speed-up = sum over plain steps T(1) / sum over drafted steps (T(1 + n) + D)

T(n) is a round of the real loop that scores n rows of arbitrary tokens, less its drafting; the drafted steps (their n
and the drafter's seconds D) come from replaying the target's recorded text, which is exact (see `replay`). It is the
quotient of `theory.costs` with the steps themselves in place of their mean. Nothing that a drafter guessed is decoded
before the prediction is made.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, cast

from outpace.bench.intervals import Interval, of_totals
from outpace.bench.replay import ReplayTarget
from outpace.control import FixedController
from outpace.errors import UsageError
from outpace.generation import Generation
from outpace.theory.costs import SecondsByRows, independence_error, measured
from outpace.types import Budget, Context, Draft, DraftSession, LawMaker, Prompt, Scores, Step

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.result import Result

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32)
LENGTHS = (1, 2, 3, 4, 5, 7)
FIRST_ROUNDS, PROBES, PROBED = 2, 16, 4
"""Rounds of an answer that are not counted, for prefill left other caches than decoding finds; those that are; and
prompts that are answered for it."""

LONGEST_LOAD = 16
"""Requests at once that the cut-off is looked for among, as far as T(n) was measured."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter and a length. predicted: before it was ever run. measured: times plain, None where it was not run."""

    drafter: str
    draft_length: int
    tokens_per_step: float
    acceptance_rate: float | None
    draft_cost: float
    predicted: float
    measured: Interval | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return None if self.measured is None else self.predicted / self.measured.value - 1

    def record(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "draft_length": self.draft_length,
            "tokens_per_step": self.tokens_per_step,
            "acceptance_rate": self.acceptance_rate,
            "draft_cost": self.draft_cost,
            "predicted": self.predicted,
            "measured": None if self.measured is None else self.measured.record(),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one setting would do on the recorded texts: (rows, draft seconds) of every step."""

    steps: tuple[tuple[int, float], ...]
    tokens: int
    drafted: int
    accepted: int
    independence_error: float | None


class Costs:
    """T(n) by rows, in seconds."""

    def __init__(self, seconds_at: Mapping[int, float]) -> None:
        self.seconds_at = dict(seconds_at)
        self.score: SecondsByRows = measured(sorted(seconds_at.items()))

    @property
    def most_rows(self) -> int:
        return max(self.seconds_at)

    def speedup(self, plain_steps: int, found: Replayed) -> float:
        """Returns the predicted speed-up of replayed steps over plain ones."""
        return plain_steps * self.score(1) / sum(self.score(rows) + drafting for rows, drafting in found.steps)

    def speedup_at(self, load: int, tokens_per_step: float, length: int, draft_seconds: float) -> float | None:
        """Returns the predicted speed-up of `load` requests that share every pass; None beyond the measured rows.

        draft_seconds: of a step; a draft's passes are shared as well and taken to cost the same.
        """
        rows = load * (1 + length)
        if rows > self.most_rows:
            return None
        return tokens_per_step * self.score(load) / (self.score(rows) + draft_seconds)


def record_plain(model: Model, prompts: Sequence[str], max_tokens: int) -> dict[tuple[int, ...], Result]:
    """Returns prompt ids -> its plain greedy answer."""
    answers = {}
    for prompt in prompts:
        ids = tuple(model.text.render_chat([{"role": "user", "content": prompt}]))
        answers[ids] = model.generate(prompt, max_tokens=max_tokens, drafter="none")
    return answers


def replay(
    model: Model, answers: Mapping[tuple[int, ...], Result], prompts: Sequence[str], max_tokens: int, **options: Any
) -> Replayed:
    """Returns what a setting (drafter, draft_length) would do on the recorded answers, its drafter really running."""
    from outpace.api import Model

    texts = {ids: answer.tokens for ids, answer in answers.items()}
    recorded = Model(ReplayTarget(texts, model.target), model.text, model.draft)
    steps: list[tuple[int, float]] = []
    tested: list[int] = []
    kept: list[int] = []
    tokens = 0
    for prompt in prompts:
        result = recorded.generate(prompt, max_tokens=max_tokens, **options)
        tokens += len(result.tokens)
        for step in result.steps:
            steps.append((1 + len(step.draft), step.seconds.draft))
            for place in range(min(step.drafted, step.accepted + 1)):
                if place == len(tested):
                    tested.append(0)
                    kept.append(0)
                tested[place] += 1
                kept[place] += place < step.accepted
    drafted = sum(rows - 1 for rows, _ in steps)
    error = independence_error(kept, tested) if tested else None
    return Replayed(tuple(steps), tokens, drafted, sum(kept), error)


def pass_seconds(
    model: Model, prompts: Sequence[str], *, seconds: float, rows: Sequence[int] = ROWS
) -> dict[int, float]:
    """Returns {rows: seconds of a round less its drafting}, trimmed means over rounds of the real loop.

    The rounds score arbitrary tokens, so that everything a round does is in it, as cold as it is in decoding, and
    nothing that a drafter would have guessed. An answer keeps to one number of rows, as decoding with drafts mostly
    does: a narrow pass after a wide one takes longer than after a narrow one. Raises UsageError when the context is
    too short.
    """
    found: dict[int, list[float]] = {count: [] for count in rows}
    begin, turn = clock(), 0
    while clock() - begin < seconds or turn == 0:
        for place, prompt in enumerate(prompts[:PROBED]):
            for count in rows if (place + turn) % 2 else reversed(rows):
                found[count] += _probed(model, prompt, count)
        turn += 1
    absent = [count for count in rows if not found[count]]
    if absent:
        raise UsageError(f"there is no room to measure {absent[-1]} rows: set a larger --context")
    return {count: _trimmed(found[count]) for count in rows}


def _probed(model: Model, prompt: str, rows: int) -> Iterator[float]:
    """Yields the seconds less drafting of PROBES rounds after the first ones of an answer."""
    # Room for the last draft too; each round may commit more than one token by luck.
    max_tokens = 2 * (FIRST_ROUNDS + PROBES) + rows
    plain = model.stream(prompt, drafter="none", max_tokens=max_tokens)
    ids = tuple(plain.round.committed)
    plan = replace(plain.plan, drafter=Probe(), controller=FixedController(rows - 1), endings=frozenset())
    plain.close()
    probing = Generation(
        model.target, model.text, ids, plan, max_tokens=max_tokens, stop=(), observer=None, load_seconds=0.0
    )
    before = clock()
    for place, chunk in enumerate(probing):
        now = clock()
        if place >= FIRST_ROUNDS and len(chunk.step.draft) == rows - 1:
            yield now - before - chunk.step.seconds.draft
        if place >= FIRST_ROUNDS + PROBES:
            break
        before = clock()
    probing.close()


def _trimmed(values: Sequence[float]) -> float:
    """Returns the mean less the tenth at either end: what another process took is no cost of ours."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


class Probe:
    """A Drafter of arbitrary tokens, as many as are asked for."""

    name = "probe"
    vocab_size = 0
    taps: tuple[int, ...] = ()
    drafts_trees = False
    self_limiting = False
    weight_bytes = 0

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> ProbeSession:
        return ProbeSession(prompt.ids)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        """Returns a chain for each; of the prompt's own tokens, in an order that nobody would say."""
        own = cast("Sequence[tuple[ProbeSession, Budget]]", work)
        return [Draft.chain([s.ids[-1 - i % len(s.ids)] for i in range(budget.depth)]) for s, budget in own]


class ProbeSession:
    """Learns nothing."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids

    def observe(self, step: Step, scores: Scores) -> None:
        pass

    def close(self) -> None:
        pass


def measure_speedups(
    model: Model,
    prompts: Sequence[str],
    settings: Sequence[Setting],
    max_tokens: int,
    repeats: int,
    progress: Progress,
) -> list[Interval]:
    """Returns each setting's speed-up over plain decoding: turns at every prompt, medians over repeats."""
    options = [{"drafter": "none"}, *({"drafter": s.drafter, "draft_length": s.draft_length} for s in settings)]
    rows = []
    for place, prompt in enumerate(prompts):
        spent: list[list[float]] = [[] for _ in options]
        for repeat in range(repeats):
            progress((place * repeats + repeat) / (len(prompts) * repeats), "checking the prediction")
            order = list(enumerate(options))
            for i, one in order if (place + repeat) % 2 else reversed(order):
                spent[i].append(model.generate(prompt, max_tokens=max_tokens, **one).seconds.decode)  # type: ignore[arg-type]
        rows.append([statistics.median(each) for each in spent])
    return [
        of_totals([(row[0], row[i + 1]) for row in rows], lambda total: total[..., 0] / total[..., 1])
        for i in range(len(settings))
    ]
