"""Why drafts do not pay, or could not: each cause with its figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outpace.bench.tune import Setting
from outpace.bench.tuning import DOUBT, Tuning, tune
from outpace.theory.costs import StepCosts, break_even_acceptance, measured

if TYPE_CHECKING:
    from outpace.api import Model

FLAT = 1.3
"""Most that five rows may cost of one for scoring to be called flat."""

TOKENS, SECONDS, LENGTHS = 48, 3.0, (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis. good: nothing stands in the way here."""

    about: str
    good: bool
    figure: str


def diagnose(model: Model, prompts: tuple[str, ...]) -> tuple[Finding, ...]:
    """Returns what stands between this pair and a speed-up, from measured costs and replayed drafts.

    Nothing is decoded with drafts; it takes as long as answering the prompts, a few seconds on a small model.
    """
    return findings(
        tune(model, prompts, max_tokens=TOKENS, lengths=LENGTHS, seconds=SECONDS, check=False),
        bit_exact=model.target.bit_exact,
    )


def findings(found: Tuning, *, bit_exact: bool) -> tuple[Finding, ...]:
    """Returns the findings of a tuning, for the draft model where there is one, else for n-grams."""
    drafter = "ngram" if found.draft is None else "model"
    settings = [setting for setting in found.settings if setting.drafter == drafter]
    one = settings[0]
    best = max(settings, key=lambda setting: setting.predicted)
    return (
        _agreement(one, found),
        _cost(one),
        _scoring(found),
        _gain(best),
        _load(found),
        Finding(
            "text",
            bit_exact,
            "a row's logits do not depend on its company: the text with drafts is the text without, bit for bit"
            if bit_exact
            else "this engine's rounding depends on the batch: the law is kept, near-ties may fall otherwise",
        ),
    )


def _agreement(one: Setting, found: Tuning) -> Finding:
    seconds = found.seconds_by_rows
    costs = StepCosts(measured(sorted(seconds.items())), draft_seconds_per_token=one.draft_cost * seconds[1])
    needed = break_even_acceptance(costs, 1)
    alpha = one.acceptance_rate
    if alpha is None:
        return Finding("acceptance", False, "nothing was drafted: the prompts repeat nothing that n-grams could find")
    if needed is None:
        return Finding("acceptance", False, f"{alpha:.2f} of first guesses is right; no acceptance pays")
    return Finding(
        "acceptance", alpha > needed, f"{alpha:.2f} of first guesses is right, {needed:.2f} is needed to pay"
    )


def _cost(one: Setting) -> Finding:
    alpha = one.acceptance_rate or 0.0
    good = one.draft_cost < alpha
    less = "less" if good else "no less"
    more = "" if good else ": no length can pay; take a smaller draft or n-grams"
    figure = f"a drafted token costs c = {one.draft_cost:.2f} plain passes, {less} than alpha = {alpha:.2f}{more}"
    return Finding("draft cost", good, figure)


def _scoring(found: Tuning) -> Finding:
    ratio = found.seconds_by_rows[5] / found.seconds_by_rows[1]
    good = ratio <= FLAT
    more = "" if good else ": scoring is not flat, so short drafts or none; look at --threads and other load"
    return Finding("scoring", good, f"five rows cost {ratio:.2f} of one{more}")


def _gain(best: Setting) -> Finding:
    good = best.predicted > 1 + DOUBT
    return Finding(
        "speed-up",
        good,
        f"{best.predicted:.2f} times plain predicted with {best.drafter} drafts of {best.draft_length}",
    )


def _load(found: Tuning) -> Finding:
    if found.chosen is None:
        return Finding("load", False, "drafts do not pay for one request, so for no more")
    if found.cut_off is None:
        return Finding("load", True, "drafts pay for as many requests at once as were measured")
    return Finding(
        "load",
        True,
        f"drafts pay for up to {found.cut_off} requests at once; beyond that a pass is bound by arithmetic",
    )
