"""Which drafter and length pay on this machine with these prompts: costs measured, steps replayed, then checked.

    predicted speed-up = sum over plain steps T(1) / sum over drafted steps (T(1 + n) + D)

T(n) is a round of the real loop that scores n rows of arbitrary tokens, less its drafting; D the drafter's seconds
(see `costs`); the drafted steps come from replaying the target's recorded text, which is exact (see `replay`). It is
the quotient of `theory.costs` with the steps themselves in place of their mean. No prediction uses a round in which
something that a drafter guessed was decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outpace.bench.costs import Costs
from outpace.bench.intervals import Interval, of_totals, of_turns
from outpace.bench.replay import ReplayTarget
from outpace.theory.costs import independence_error

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.result import Result

LENGTHS = (1, 2, 3, 4, 5, 7)

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter and a length. predicted: without its ever having run. measured: times plain, None: it was not run."""

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
    """What one setting would do on the recorded texts: (rows, draft seconds) of every step.

    begins: the steps whose drafter reads a prompt first.
    """

    steps: tuple[tuple[int, float], ...]
    tokens: int
    drafted: int
    accepted: int
    independence_error: float | None
    begins: frozenset[int] = frozenset()

    def seconds(self, drafter: str, costs: Costs) -> float:
        """Returns what the steps take."""
        return sum(
            costs.step(drafter, rows, drafting, place in self.begins)
            for place, (rows, drafting) in enumerate(self.steps)
        )


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
    begins: set[int] = set()
    tested: list[int] = []
    kept: list[int] = []
    tokens = 0
    for prompt in prompts:
        forget_draft(model)
        begins.add(len(steps))
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
    return Replayed(tuple(steps), tokens, drafted, sum(kept), error, frozenset(begins))


def forget_draft(model: Model) -> None:
    """Makes the draft model read the next prompt anew, as it must for a prompt that is new."""
    forget = getattr(model.draft, "forget_prefixes", None)
    if forget:
        forget()


def measure_speedups(
    model: Model,
    prompts: Sequence[str],
    settings: Sequence[Setting],
    max_tokens: int,
    repeats: int,
    between: Callable[[], None],
    progress: Progress,
) -> list[Interval]:
    """Returns each setting's speed-up over plain decoding, from turns at every prompt.

    between: called before each repeat.
    """
    options: list[dict[str, Any]] = [{"drafter": "none"}]
    options += [{"drafter": one.drafter, "draft_length": one.draft_length} for one in settings]
    spent: list[list[list[float]]] = [[[] for _ in options] for _ in prompts]
    for repeat in range(repeats):
        between()
        for place, prompt in enumerate(prompts):
            progress((repeat * len(prompts) + place) / (len(prompts) * repeats), "checking the prediction")
            order = list(enumerate(options))
            for i, one in order if (place + repeat) % 2 else reversed(order):
                forget_draft(model)
                spent[place][i].append(model.generate(prompt, max_tokens=max_tokens, **one).seconds.decode)
    return [
        of_totals([of_turns(at[0], at[i + 1]) for at in spent], lambda total: total[..., 0] / total[..., 1])
        for i in range(len(settings))
    ]
