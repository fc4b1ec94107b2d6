"""Broken rules, kept to show that the enumeration has teeth.

Each breaks one sentence of the method, as a published or plausible implementation did, and names the case on which
the enumeration must see it. A mutant that survives fails the audit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from outpace.audit import broken
from outpace.audit.drafting import chain_from
from outpace.audit.enumerate import (
    Drafting,
    ExactNoise,
    NoiseMaker,
    Scoring,
    Table,
    emitted,
    joint,
    random_table,
    scored,
    total_variation,
)
from outpace.rules.block import Block
from outpace.rules.rejection import Rejection
from outpace.rules.traversal import Traversal
from outpace.types import Rule

LEAST_DEVIATION = Fraction(1, 100)
"""Total variation from which on a mutant counts as seen; a right rule has 0."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """fault: what it does wrong, in a line. killer: the check that must see it. sizes, horizon: as in `Case`."""

    name: str
    fault: str
    killer: str
    rule: Rule
    drafting: Drafting
    sizes: tuple[int, ...]
    horizon: int
    target: Table
    noise: NoiseMaker = ExactNoise
    scoring: Scoring = scored

    def deviation(self) -> Fraction:
        """Returns the total variation between what it emits and the target's law."""
        law = emitted(self.rule, self.target, self.drafting, self.sizes, self.horizon, self.noise, self.scoring)
        return total_variation(law, joint(self.target, self.horizon))


def _chain(name: str, fault: str, rule: Rule, **changes: Any) -> Mutant:
    """Returns a mutant on a chain of 1 under the laws P and Q, but for what is changed."""
    q, p = chain_from(broken.always_q), broken.always_p
    return replace(Mutant(name, fault, "enumeration, rejection on a chain", rule, q, (1,), 2, p), **changes)


def _block(name: str, fault: str, rule: Rule, **changes: Any) -> Mutant:
    """Returns a mutant on a chain of 3 under two random tables."""
    q, p = chain_from(random_table(22)), random_table(21)
    return replace(Mutant(name, fault, "enumeration, block on a chain", rule, q, (3,), 4, p), **changes)


def _siblings(name: str, fault: str, drafting: Drafting, rule: Rule, target: Table) -> Mutant:
    """Returns a mutant on two siblings."""
    return Mutant(name, fault, f"enumeration, {rule.name} on siblings", rule, drafting, (2,), 2, target)


MUTANTS = (
    _chain("residual forgotten", "the correction is drawn from p", broken.CorrectsFromTarget()),
    _chain(
        "residual reversed", "the correction is drawn from norm(max(0, q - p))", broken.CorrectsFromReversedResidual()
    ),
    _chain(
        "q before the warper",
        "draws with top_k, reports the law before it",
        Rejection(),
        drafting=broken.drawn_otherwise,
    ),
    _chain(
        "argmax draft, soft law",
        "the likeliest token is scored as if it had been drawn",
        Rejection(),
        drafting=broken.likeliest_scored_softly,
    ),
    _chain("shared uniform", "one uniform draws the token and tests it", Rejection(), noise=broken.SharedUniform),
    _chain(
        "token dropped for its own q",
        "a drawn token is withdrawn because it was unlikely",
        Rejection(),
        drafting=broken.drops_unlikely_tokens,
    ),
    _chain(
        "late rejection",
        "the correction is drawn from the row after the rejected token",
        broken.CorrectsOneRowLate(),
        target=random_table(12),
    ),
    _chain(
        "bonus from the wrong row",
        "the bonus is drawn from the row before its own",
        broken.TakesBonusFromTheRowBefore(),
        target=random_table(12),
    ),
    _chain(
        "a round's noise reused",
        "the second round accepts by the first one's uniforms",
        Rejection(),
        noise=broken.SameEveryRound,
        sizes=(1, 1),
        horizon=3,
    ),
    _chain(
        "top_p only on the bonus",
        "draft tokens are tested with the unfiltered law",
        Rejection(),
        target=broken.always_filtered,
        scoring=broken.filters_the_bonus_only,
    ),
    _chain(
        "penalty once per block",
        "penalties count committed tokens only, not the draft's",
        Rejection(),
        sizes=(2,),
        horizon=3,
        target=broken.penalised,
        scoring=broken.penalises_once_a_block,
    ),
    _siblings(
        "drawn without, verified with replacement",
        "siblings are tested with a law that still holds the earlier ones",
        broken.reports_with_replacement,
        Rejection(),
        lambda _: broken.SLOPED,
    ),
    _siblings(
        "the same under traversal",
        "siblings are removed with a law that still holds the earlier ones",
        broken.reports_with_replacement,
        Traversal(),
        lambda _: broken.SLOPED,
    ),
    _siblings(
        "drawn with, verified without replacement",
        "independent siblings are tested with a law less the earlier ones",
        broken.reports_without_replacement,
        Rejection(),
        lambda _: broken.SLOPED,
    ),
    _siblings(
        "siblings sorted",
        "the order in which siblings were drawn is lost",
        broken.sorts_siblings,
        Rejection(),
        broken.always_p,
    ),
    _block(
        "block: a_tau forgotten",
        "the correction is drawn from norm(max(0, p - q))",
        broken.ForgetsReach(),
        drafting=chain_from(random_table(58, 4)),
        sizes=(2,),
        horizon=3,
        target=random_table(8, 4),
    ),
    _block("block: first failure", "the search ends at the first failure", broken.StopsAtFirstFailure()),
    _block("block: uncapped product", "the joint ratio rises above 1", broken.UncappedProduct()),
    _block(
        "block: uncapped last test", "the whole chain is tested with an uncapped product", broken.UncappedLastTest()
    ),
    _block("block: row shifted", "S_i is taken from row i, not i + 1", broken.MassOfTheRowBefore()),
    _block(
        "block: noise by position",
        "a discarded uniform is met again",
        Block(),
        noise=broken.KeyedByPosition,
        drafting=chain_from(random_table(56, 2)),
        sizes=(2, 2),
        target=random_table(6, 2),
    ),
    Mutant(
        "traversal: parent unchanged",
        "a failed leaf leaves its parent's joint ratio as it was",
        "enumeration, traversal on a chain",
        broken.KeepsParentsReach(),
        chain_from(random_table(22)),
        (3,),
        4,
        random_table(21),
    ),
)
"""Every mutant that the enumeration must see."""
