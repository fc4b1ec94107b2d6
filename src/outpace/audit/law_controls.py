"""Mutants that the test of the law must see: in the real loop on a table target, and on the model under audit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from outpace.audit import broken
from outpace.audit.enumerate import total_variation
from outpace.audit.loops import Loop
from outpace.audit.mutants import MUTANTS, Mutant
from outpace.audit.outcomes import Outcomes
from outpace.audit.report import Control, Finding
from outpace.audit.statistics import POWER, fit, needed_noncentrality
from outpace.audit.table import laws_of, loop_of, noise_of
from outpace.types import Rule

LEAST_VARIATION = 0.03
"""Total variation from which on a mutant is the law test's to kill; the enumeration sees smaller ones."""

LEVEL = 1e-6
MOST = 20_000


def table_controls() -> Iterator[Control]:
    """Yields the mutants of the enumeration that the test of the law must see as well."""
    for mutant in MUTANTS:
        if noise_of(mutant) is not None:
            yield Control(
                mutant.name, mutant.fault, "law on a table target, power 0.99", partial(seen_on_its_table, mutant)
            )


def seen_on_its_table(mutant: Mutant) -> Finding:
    """Draws from the real loop with the fault, as often as its exact law takes to be seen with power 0.99."""
    noise = noise_of(mutant)
    if noise is None:
        raise ValueError(f"{mutant.name} has no place in the real loop")
    wrong, right = laws_of(mutant)
    variation = float(total_variation(wrong, right))
    expected = {outcome: float(p) for outcome, p in right.items()}
    distance = sum((float(wrong.get(x, 0)) - p) ** 2 / p for x, p in expected.items())
    n = min(MOST, max(200, math.ceil(needed_noncentrality(len(expected) - 1, LEVEL, POWER) / distance)))
    found = fit(loop_of(mutant, noise).counts(range(n)), expected, LEVEL)
    return Finding(found.holds, f"total variation {variation:.3f} exactly; {found}")


def model_controls(loop: Loop, outcomes: Outcomes, n: int) -> Iterator[Control]:
    """Yields mutants of the rejection rule in a loop on the model under audit."""
    rules: tuple[tuple[str, str, Rule], ...] = (
        ("residual forgotten", "the correction is drawn from p", broken.CorrectsFromTarget()),
        ("late rejection", "the correction is drawn from the row after", broken.CorrectsOneRowLate()),
        ("bonus from the wrong row", "the bonus is drawn a row early", broken.TakesBonusFromTheRowBefore()),
    )
    for name, fault, rule in rules:
        wrong = replace(loop, rule=rule)
        yield Control(f"{name}, on this model", fault, "law on this model", partial(_seen, wrong, outcomes, n))


def _seen(loop: Loop, outcomes: Outcomes, n: int) -> Finding:
    found = fit(outcomes.count(loop.counts(range(n))), outcomes.law, LEVEL)
    return Finding(found.holds, str(found))
