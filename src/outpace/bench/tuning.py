"""What `outpace tune` finds: costs, agreement, settings predicted and measured, and what to use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace import profiles
from outpace.bench.costs import ROWS, Costs, Samples
from outpace.bench.laws import along
from outpace.bench.tune import LENGTHS, Progress, Replayed, Setting, measure_speedups, record_plain, replay

if TYPE_CHECKING:
    from outpace.api import Model

LAW_TEXTS, LAW_TOKENS = 4, 32
"""Texts of the target, and tokens of each, along which both laws are computed."""

RULE_LENGTH = 4
"""Draft length at which the rules' expected accepted tokens are compared."""

LONGEST_LOAD = 16
"""Requests at once that the cut-off is looked for among, as far as T(n) was measured."""

AGAIN = 2.0
"""Seconds for the costs before each repeat of the check, at least once each."""

DOUBT = 0.05
"""Speed-ups within this of 1 are not recommended: they are not worth a setting."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """From the full laws along sampled texts. beta: 1 - D_TV at each place, [texts] of [tokens].

    accepted: rule -> expected accepted tokens of a chain of RULE_LENGTH.
    """

    temperature: float
    beta: tuple[tuple[float, ...], ...]
    accepted: dict[str, float]

    @property
    def mean(self) -> float:
        """alpha: the mean of beta."""
        return statistics.fmean(value for text in self.beta for value in text)

    @property
    def length(self) -> int:
        """Of the chain whose accepted tokens are given."""
        return RULE_LENGTH

    def by_position(self) -> list[float]:
        """Returns the mean of beta at each position of the text, over the texts that reach it."""
        longest = max(map(len, self.beta))
        return [statistics.fmean(text[i] for text in self.beta if i < len(text)) for i in range(longest)]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Of beta over all places."""
        low, middle, high = statistics.quantiles([value for text in self.beta for value in text], n=4)
        return low, middle, high

    def record(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "beta": [list(text) for text in self.beta],
            "mean": self.mean,
            "quartiles": list(self.quartiles),
            "accepted_of": RULE_LENGTH,
            "accepted": self.accepted,
        }


@dataclass(frozen=True, slots=True)
class Tuning:
    """The whole finding. cut_off: most requests at once at which the chosen setting is predicted to pay; None: as
    far as was measured. independence: by what share one acceptance for all positions overstates tokens a step.
    plain_seconds: of a plain round, each time that costs were measured.
    """

    model: str
    draft: str | None
    threads: int
    seconds_by_rows: dict[int, float]
    settings: tuple[Setting, ...]
    independence: dict[str, float]
    agreement: Agreement | None
    chosen: Setting | None
    cut_off: int | None
    prompts: int
    plain_seconds: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def drift(self) -> float:
        """The slowest plain round over the fastest, by turns of measuring: how much the machine itself changed."""
        return max(self.plain_seconds) / min(self.plain_seconds) if self.plain_seconds else 1.0

    @property
    def rule(self) -> str:
        """The rule to use: the seed's text, unless another is expected to accept over a tenth more."""
        if self.agreement is None:
            return "coupled"
        accepted = self.agreement.accepted
        best = max(accepted, key=lambda rule: accepted[rule])
        return best if accepted[best] > 1.1 * accepted["coupled"] else "coupled"

    def save(self, model: Model) -> Path:
        """Returns the profile's file, after keeping the costs for later runs of this model on this machine."""
        return profiles.learn(model.target, self.seconds_by_rows)

    def record(self) -> dict[str, Any]:
        return {
            "format": "outpace tune 1",
            "model": self.model,
            "draft": self.draft,
            "threads": self.threads,
            "prompts": self.prompts,
            "plain_seconds": list(self.plain_seconds),
            "seconds_by_rows": {str(rows): seconds for rows, seconds in self.seconds_by_rows.items()},
            "settings": [setting.record() for setting in self.settings],
            "independence_error": self.independence,
            "agreement": None if self.agreement is None else self.agreement.record(),
            "recommended": None
            if self.chosen is None
            else {
                "drafter": self.chosen.drafter,
                "draft_length": self.chosen.draft_length,
                "rule": self.rule,
                "pays_up_to_requests": self.cut_off,
            },
            "provenance": self.provenance,
        }


def tune(
    model: Model,
    prompts: Sequence[str],
    *,
    max_tokens: int = 96,
    lengths: Sequence[int] = LENGTHS,
    seconds: float = 6.0,
    repeats: int = 2,
    check: bool = True,
    drafters: Sequence[str] = (),
    temperature: float = 1.0,
    provenance: dict[str, Any] | None = None,
    progress: Progress = lambda fraction, what: None,
) -> Tuning:
    """Returns what pays for this model, draft and prompts on this machine.

    drafters: by default n-grams, and the draft model where there is one. seconds: for T(n). check: run every setting
    afterwards, in turns with plain decoding; costs are then measured again before each repeat, and predictions use
    all of them, since a machine may change meanwhile. temperature: of the laws that are compared.
    """
    names = drafters or (("ngram",) if model.draft is None else ("ngram", "model"))
    progress(0.0, "plain answers")
    model.generate(prompts[0], max_tokens=8, drafter="none")  # wakes the threads
    answers = record_plain(model, prompts, max_tokens)
    plain_steps = sum(len(answer.steps) for answer in answers.values())
    progress(0.2, "passes by rows")
    room = [n for n in ROWS if n <= max(lengths) + 1 or n <= 2 * LONGEST_LOAD]
    samples = Samples(
        model, prompts, room, [name for name in names if _runs_a_model(model, prompts[0], name)], lengths
    )
    samples.take(seconds)
    replays: dict[tuple[str, int], Replayed] = {}
    for name in names:
        for length in lengths:
            progress(0.4, f"{name}, drafts of {length}")
            found = replay(model, answers, prompts, max_tokens, drafter=name, draft_length=length)
            replays[name, length] = found
    independence = {  # of the longest length, the last one
        name: one.independence_error for (name, _), one in replays.items() if one.independence_error is not None
    }
    progress(0.6, "laws of target and draft")
    agreement = None if model.draft is None else _agreement(model, prompts, temperature)
    settings = [_setting(*key, found, samples.costs(), plain_steps) for key, found in replays.items()]
    if check:

        def again() -> None:
            progress(0.7, "passes by rows, again")
            samples.take(AGAIN, max(lengths) + 1)

        measured = measure_speedups(model, prompts, settings, max_tokens, repeats, again, progress)
        costs = samples.costs()
        settings = [_setting(*key, found, costs, plain_steps) for key, found in replays.items()]
        settings = [replace(one, measured=interval) for one, interval in zip(settings, measured, strict=True)]
    costs = samples.costs()
    chosen = _chosen(settings)
    return Tuning(
        model.target.name,
        None if model.draft is None else model.draft.name,
        model.target.threads,
        costs.seconds_at,
        tuple(settings),
        independence,
        agreement,
        chosen,
        None if chosen is None else _cut_off(costs, chosen),
        len(prompts),
        tuple(samples.plain),
        provenance or {},
    )


def _runs_a_model(model: Model, prompt: str, drafter: str) -> bool:
    opened = model.stream(prompt, drafter=drafter, max_tokens=1)
    opened.close()
    return opened.plan.drafter.weight_bytes > 0


def _setting(drafter: str, length: int, found: Replayed, costs: Costs, plain_steps: int) -> Setting:
    """Returns the prediction: the quotient of the seconds of the plain steps and of the replayed ones."""
    drafting = sum(costs.drafted.get((drafter, rows), (0.0, seconds))[1] for rows, seconds in found.steps if rows > 1)
    return Setting(
        drafter,
        length,
        found.tokens / len(found.steps),
        found.accepted / found.drafted if found.drafted else None,
        drafting / found.drafted / costs.score(1) if found.drafted else 0.0,
        plain_steps * costs.score(1) / found.seconds(drafter, costs),
    )


def _chosen(settings: Sequence[Setting]) -> Setting | None:
    best = max(settings, key=lambda s: s.predicted if s.measured is None else s.measured.value)
    speed = best.predicted if best.measured is None else best.measured.value
    return best if speed > 1 + DOUBT else None


def _cut_off(costs: Costs, chosen: Setting) -> int | None:
    """Returns the most requests at once at which the setting pays; None where it pays as far as was measured."""
    drafting = chosen.draft_cost * chosen.draft_length * costs.score(1)
    for load in range(1, LONGEST_LOAD + 1):
        speed = costs.speedup_at(load, chosen.tokens_per_step, chosen.draft_length, drafting)
        if speed is None:
            return None
        if speed <= 1:
            return load - 1
    return None


def _agreement(model: Model, prompts: Sequence[str], temperature: float) -> Agreement:
    beta: list[tuple[float, ...]] = []
    sums = {"rejection": 0.0, "block": 0.0, "coupled": 0.0}
    places = 0
    for number, prompt in enumerate(prompts[:LAW_TEXTS]):
        text = along(model, prompt, seed=number, max_tokens=LAW_TOKENS, temperature=temperature)
        beta.append(tuple(text.overlap))
        for start in range(len(text) - RULE_LENGTH + 1):
            one = text.accepted(start, RULE_LENGTH)
            places += 1
            for rule, value in (("rejection", one.rejection), ("block", one.block), ("coupled", one.coupled)):
                sums[rule] += value
    return Agreement(temperature, tuple(beta), {rule: total / max(places, 1) for rule, total in sums.items()})
