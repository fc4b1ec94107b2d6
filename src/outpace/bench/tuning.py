"""What `outpace tune` finds: costs, agreement, settings predicted and measured, and what to use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace import profiles
from outpace.bench.laws import along
from outpace.bench.tune import (
    LENGTHS,
    LONGEST_LOAD,
    ROWS,
    Costs,
    Progress,
    Setting,
    measure_speedups,
    pass_seconds,
    record_plain,
    replay,
)

if TYPE_CHECKING:
    from outpace.api import Model

LAW_TEXTS, LAW_TOKENS = 4, 32
"""Texts of the target, and tokens of each, along which both laws are computed."""

RULE_LENGTH = 4
"""Draft length at which the rules' expected accepted tokens are compared."""

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
    provenance: dict[str, Any] = field(default_factory=dict)

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
    afterwards, in turns with plain decoding. temperature: of the laws that are compared.
    """
    names = drafters or (("ngram",) if model.draft is None else ("ngram", "model"))
    progress(0.0, "plain answers")
    model.generate(prompts[0], max_tokens=8, drafter="none")  # wakes the threads
    answers = record_plain(model, prompts, max_tokens)
    plain_steps = sum(len(answer.steps) for answer in answers.values())
    progress(0.2, "passes by rows")
    room = [n for n in ROWS if n <= max(lengths) + 1 or n <= 2 * LONGEST_LOAD]
    costs = Costs(pass_seconds(model, prompts, seconds=seconds, rows=room))
    settings: list[Setting] = []
    independence: dict[str, float] = {}
    for name in names:
        for length in lengths:
            progress(0.4, f"{name}, drafts of {length}")
            found = replay(model, answers, prompts, max_tokens, drafter=name, draft_length=length)
            if found.independence_error is not None:
                independence[name] = found.independence_error  # of the longest length, the last one
            drafting = sum(seconds for _, seconds in found.steps)
            settings.append(
                Setting(
                    name,
                    length,
                    found.tokens / len(found.steps),
                    found.accepted / found.drafted if found.drafted else None,
                    drafting / found.drafted / costs.score(1) if found.drafted else 0.0,
                    costs.speedup(plain_steps, found),
                )
            )
    progress(0.6, "laws of target and draft")
    agreement = None if model.draft is None else _agreement(model, prompts, temperature)
    if check:
        measured = measure_speedups(model, prompts, settings, max_tokens, repeats, progress)
        settings = [replace(one, measured=interval) for one, interval in zip(settings, measured, strict=True)]
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
        provenance or {},
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
