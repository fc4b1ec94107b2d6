"""What a draft's length, size and temperature do: measured, beside what the theory makes of acceptance and costs.

alpha is counted over every guess that was tested: those accepted, and the first wrong one of a draft. c is the median
of a drafted token's seconds in plain passes. Predictions use alpha, c, the profile's cost of scoring n rows, and the
share of rounds in which a drafter had something to say.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outpace.bench.drafters import PLAIN, Prompt
from outpace.errors import OutpaceError, UsageError
from outpace.theory import costs, speedup

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.result import Result

TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10)
PROBE_LENGTH = 4
LONGEST = 12

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class TemperaturePoint:
    """How often a guess of a drafter is right at one temperature; tested: guesses that this is counted over."""

    drafter: str
    temperature: float
    acceptance: float | None
    tested: int


@dataclass(frozen=True, slots=True)
class LengthPoint:
    """One drafter at one fixed draft length: times plain decoding, measured and by the theory."""

    drafter: str
    length: int
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One draft for a target. draft_bytes: read for a token. length: with which it should be fastest; 0: none pays.

    formula: times plain by theorem 3.8 of Leviathan et al., where scoring is free and every round drafts. predicted:
    with measured costs of rows and rounds without drafts. measured: at that length, the draft's own prefill included.
    ceiling: 1 / (1 - alpha).
    """

    draft: str
    draft_bytes: int
    cost: float
    acceptance: float
    ceiling: float
    length: int
    formula: float
    predicted: float
    measured: float


def temperature_curve(
    model: Model, prompts: Sequence[Prompt], drafters: Sequence[str], *, max_tokens: int, seed: int = 1
) -> list[TemperaturePoint]:
    """Returns acceptance by temperature, drafts of PROBE_LENGTH."""
    points = []
    for name in drafters:
        for temperature in TEMPERATURES:
            results = [_run(model, prompt, name, PROBE_LENGTH, max_tokens, temperature, seed) for prompt in prompts]
            accepted, tested = judged_guesses(results)
            points.append(TemperaturePoint(name, temperature, accepted / tested if tested else None, tested))
    return points


def length_curve(
    model: Model, prompts: Sequence[Prompt], drafters: Sequence[str], *, max_tokens: int
) -> list[LengthPoint]:
    """Returns times plain by draft length, greedy. Raises OutpaceError when a drafter changes a text."""
    points = []
    for name in drafters:
        runs = {length: _timed(model, prompts, name, length, max_tokens) for length in LENGTHS}
        accepted, tested = judged_guesses(result for run in runs.values() for result in run.drafted)
        alpha = accepted / max(tested, 1)
        for length, run in runs.items():
            predicted = predicted_speedup(alpha, run.share, length, run.costs(model))
            points.append(LengthPoint(name, length, run.speedup, predicted))
    return points


def size_row(label: str, model: Model, drafter: str, prompts: Sequence[Prompt], *, max_tokens: int) -> SizeRow:
    """Returns what one draft is worth: probed with drafts of PROBE_LENGTH, then measured at its best length."""
    probe = _timed(model, prompts, drafter, PROBE_LENGTH, max_tokens)
    accepted, tested = judged_guesses(probe.drafted)
    alpha = accepted / tested if tested else 0.0
    step = probe.costs(model)
    rates = [predicted_speedup(alpha, probe.share, length, step) for length in range(LONGEST + 1)]
    best = rates.index(max(rates))
    measured = _timed(model, prompts, drafter, best, max_tokens).speedup if best else 1.0
    return SizeRow(
        label,
        probe.drafted[0].draft_bytes,
        step.draft_cost,
        alpha,
        speedup.ceiling(alpha),
        best,
        speedup.improvement(alpha, best, step.draft_cost),
        rates[best],
        measured,
    )


def predicted_speedup(alpha: float, share: float, length: int, step: costs.StepCosts) -> float:
    """Returns times plain where a share of the rounds has a draft of this length and the others have none."""
    tokens = share * speedup.tokens_per_step(alpha, length) + 1 - share
    seconds = share * step.step_seconds(length) + (1 - share) * step.plain_seconds
    return tokens * step.plain_seconds / seconds


def judged_guesses(results: Iterable[Result]) -> tuple[int, int]:
    """Returns (accepted, tested): a draft is tested up to its first wrong guess, which counts."""
    accepted = tested = 0
    for result in results:
        for step in result.steps:
            accepted += step.accepted
            tested += step.accepted + (step.accepted < step.drafted and not step.finish)
    return accepted, tested


@dataclass(slots=True)
class _Timed:
    """Prompts decoded with drafts and plain, in turns."""

    drafted: list[Result] = field(default_factory=list)
    plain: list[Result] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """Total plain seconds over total drafted ones."""
        plain, drafted = (sum(result.seconds.decode for result in side) for side in (self.plain, self.drafted))
        return plain / drafted

    @property
    def share(self) -> float:
        """Of the rounds, those that had a draft."""
        steps = [step for result in self.drafted for step in result.steps]
        return sum(step.drafted > 0 for step in steps) / len(steps)

    def costs(self, model: Model) -> costs.StepCosts:
        """Returns what rows cost by the profile, and the median seconds of a drafted token, the first drafts of
        texts aside, which pay for a prefill. A plain pass is one of these very runs: machines have moods."""
        if not model.costs.plain_seconds:
            raise UsageError(
                f"what passes of {model.target.name} cost is not known: load the model with outpace.load"
            )
        plain = sum(result.seconds.decode for result in self.plain) / sum(len(r.tokens) for r in self.plain)
        rows = [(n, plain * model.costs.score(n)) for n in range(1, max(*LENGTHS, LONGEST) + 2)]
        later = [step for result in self.drafted for step in result.steps[1:] if step.drafted]
        token = statistics.median(step.seconds.draft / step.drafted for step in later) if later else 0.0
        return costs.StepCosts(costs.measured(rows), token)


def _timed(model: Model, prompts: Sequence[Prompt], drafter: str, length: int, max_tokens: int) -> _Timed:
    """Returns the runs. Raises OutpaceError when the drafter changes a text."""
    found = _Timed()
    for number, prompt in enumerate(prompts):
        for name in (PLAIN, drafter) if number % 2 else (drafter, PLAIN):
            side = found.plain if name == PLAIN else found.drafted
            side.append(_run(model, prompt, name, length, max_tokens))
        if found.plain[-1].tokens != found.drafted[-1].tokens:
            raise OutpaceError(f"drafter {drafter} changed the text of prompt {number} ({prompt.task})")
    return found


def _run(
    model: Model,
    prompt: Prompt,
    drafter: str,
    length: int,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 1,
) -> Result:
    return model.generate(
        prompt.text,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        drafter=drafter,
        draft_length=None if drafter == PLAIN else length,
        grammar=prompt.grammar,
    )
