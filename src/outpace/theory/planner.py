"""Which drafter, how many tokens, will it fit, will it pay: the answer from sizes, a device and assumptions.

For each candidate the speed-up is that of `costs`, with the seconds of `roofline` and the room of `memory`. They are
ranked by the speed-up at the first concurrency asked for; the others show how it changes with load.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outpace.theory import memory
from outpace.theory.candidates import candidates
from outpace.theory.length_table import ACCEPTANCES
from outpace.theory.question import Assumption, Question, assumptions
from outpace.theory.ranking import (
    LEAST_GAIN,
    Load,
    Ranked,
    does_not_fit,
    gains_by_concurrency,
    gains_by_length,
    plain,
    rank,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer.

    ranked: what pays first, then by speed-up. speculate, verdict: on the best draft that the question named, else on
    the best candidate. alternative: what would do better than that one. latency: whether the target is met, and how.
    """

    question: Question
    ranked: tuple[Ranked, ...]
    plain: tuple[Load, ...]
    fit: memory.Fit
    speculate: bool
    verdict: str
    alternative: str | None
    latency: str | None
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> Ranked | None:
        """The best candidate, None where none pays."""
        return self.ranked[0] if self.ranked[0].speculate else None

    @property
    def chosen(self) -> Ranked | None:
        """What settings are made for: the best of the named drafts that pay, else the best candidate that pays."""
        return next((one for one in self.ranked if one.candidate.named and one.speculate), self.best)

    def gains_by_concurrency(self, most: int = 1024) -> dict[str, list[tuple[int, float]]]:
        """Returns (requests, speed-up) by candidate, at powers of two up to `most` as far as they fit."""
        return {one.candidate.name: gains_by_concurrency(self.question, one, most) for one in self.ranked}

    def gains_by_length(self) -> dict[float | None, list[tuple[int, float]]]:
        """Returns (draft length, speed-up) of the chosen candidate by acceptance; None: at its own."""
        return gains_by_length(self.question, self.chosen or self.ranked[0], ACCEPTANCES)

    def record(self) -> dict[str, Any]:
        """Returns everything as plain values for JSON."""
        question = self.question
        return {
            "target": question.target.name,
            "parameters": question.target.parameters,
            "device": question.device.name,
            "devices": question.devices,
            "dtype": question.precision.name,
            "draft_dtype": (question.draft_precision or question.precision).name,
            "context": question.context,
            "concurrency": list(question.concurrency),
            "tasks": list(question.tasks),
            "speculate": self.speculate,
            "verdict": self.verdict,
            "alternative": self.alternative,
            "latency": self.latency,
            "chosen": self.chosen.candidate.name if self.chosen else None,
            "plain": [asdict(load) for load in self.plain],
            "memory": asdict(self.fit) | {"requests": self.fit.requests, "room_bytes": self.fit.room_bytes},
            "candidates": [one.record() for one in self.ranked],
            "assumptions": [asdict(one) for one in self.assumptions],
        }


def plan(question: Question) -> Plan:
    """Returns the candidates ranked, and whether to speculate. Raises UsageError for a question out of range."""
    fit = memory.fit(question.demand(None), question.device)
    found = candidates(question.target, question.drafts, question.tasks, question.acceptance)
    ranked = sorted(
        (rank(question, candidate, fit) for candidate in found),
        key=lambda one: (
            not one.speculate,
            one.candidate.unusable is not None,
            not one.first.fits,
            -one.first.speedup,
        ),
    )
    best = ranked[0] if ranked[0].speculate else None
    asked = next((one for one in ranked if one.candidate.named), None)
    verdict, alternative = _verdict(question, fit, best, asked)
    bare = tuple(plain(question, fit, requests) for requests in question.concurrency)
    return Plan(
        question=question,
        ranked=tuple(ranked),
        plain=bare,
        fit=fit,
        speculate=(asked or ranked[0]).speculate,
        verdict=verdict,
        alternative=alternative,
        latency=_latency(question, bare[0], best),
        assumptions=assumptions(question, found),
    )


def _verdict(
    question: Question, fit: memory.Fit, best: Ranked | None, asked: Ranked | None
) -> tuple[str, str | None]:
    """Returns the sentence on what was asked, and one on what would be better."""
    subject = asked or best
    at = f"at {question.concurrency[0]:,} at once and a context of {question.context:,}"
    if not fit.fits(question.concurrency[0]):
        return "do not speculate: " + does_not_fit(question, question.demand(None), question.target.name), None
    if subject is None:
        return f"do not speculate {at}: no drafter gains {LEAST_GAIN - 1:.0%}", None
    if subject.speculate:
        first = subject.first
        verdict = (
            f"speculate with {subject.candidate.name}, {_tokens(first.draft_length)} a draft, {at}: "
            f"{first.speedup:.2f} times as fast as plain"
        )
    else:
        verdict = f"do not speculate with {subject.candidate.name} {at}: {subject.reason}"
    if best is None or best is subject:
        return verdict, None
    first = best.first
    better = f"{first.speedup:.2f} times as fast as plain with {_tokens(first.draft_length)} a draft"
    return verdict, f"{best.candidate.name} would do better: {better}"


def _latency(question: Question, bare: Load, best: Ranked | None) -> str | None:
    limit = question.latency_target_seconds
    if limit is None:
        return None
    said = (
        f"{1e3 * limit:g} ms a token at {bare.requests:,} at once: plain needs {1e3 * bare.seconds_per_token:.2f} ms"
    )
    fastest = bare.seconds_per_token
    if best is not None:
        fastest = best.first.seconds_per_token
        said += f", {best.candidate.name} {1e3 * fastest:.2f} ms"
    if bare.meets_target:
        return f"{said}: met without speculation"
    return f"{said}: {'met with speculation' if fastest <= limit else 'not met'}"


def _tokens(count: int) -> str:
    return f"{count} token{'s' if count != 1 else ''}"
