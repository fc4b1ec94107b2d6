"""`outpace audit rules`: the exact law of every rule, its price in tokens, and the mutants that must be seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from outpace.audit.cases import CASES, PAIRS, Case, Pair
from outpace.audit.drafting import BRANCHES, chain_from, tree_from
from outpace.audit.enumerate import (
    Drafting,
    Table,
    accepted_mean,
    coupled_mean,
    emitted,
    fractions,
    joint,
    random_table,
    total_variation,
)
from outpace.audit.mutants import LEAST_DEVIATION, MUTANTS, Mutant
from outpace.audit.report import FAILS, HOLDS, Check, ControlCheck, Minutes, Progress, Report
from outpace.audit.report import NOT_COVERED as LEFT
from outpace.registry import RULES
from outpace.rules.lossy import Lenience
from outpace.types import Rule

TOY = Pair("toy", lambda _: fractions([1, 2]), lambda _: fractions([2, 1]))
"""Sun et al. 2024: two tokens of a draft are accepted 10/9 on average by token verification, 11/9 by block."""
TOY_ACCEPTED = {"rejection": Fraction(10, 9), "block": Fraction(11, 9)}

NOT_COVERED = (
    "penalties, filters and caches of a real model",
    "stop and EOS",
    "a drafter's state",
    "float64 rounding of the laws",
)
"""What an enumeration of rules cannot see."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """One rule on every pair and case that it takes. deviation: the largest total variation; at: where that was."""

    rule: str
    lossless: bool
    cases: int
    deviation: Fraction
    at: str

    @property
    def holds(self) -> bool:
        """A lossless rule is exact; a lossy one is seen to be lossy."""
        return (self.deviation == 0) == self.lossless


@dataclass(frozen=True, slots=True)
class Accepted:
    """Draft tokens that one round accepts on average, by rule; the step has one more."""

    case: str
    mean: dict[str, Fraction]


@dataclass(frozen=True, slots=True)
class MutantCheck:
    """A mutant and its total variation from the target's law."""

    mutant: Mutant
    deviation: Fraction

    @property
    def killed(self) -> bool:
        return self.deviation >= LEAST_DEVIATION


@dataclass(frozen=True, slots=True)
class RulesReport:
    """Everything that was enumerated. faults: what does not hold, a line each. left: rules that time ran out for."""

    rules: tuple[RuleCheck, ...]
    accepted: tuple[Accepted, ...]
    mutants: tuple[MutantCheck, ...]
    faults: tuple[str, ...]
    seconds: float
    left: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.faults

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What was left out, and what an enumeration of rules cannot see."""
        return (*(f"rule {name}: time ran out" for name in self.left), *NOT_COVERED)

    def report(self) -> Report:
        """Returns it in the form that all audits share."""
        checks = [
            Check(
                "exact law" if check.lossless else "seen to be lossy",
                check.rule,
                HOLDS if check.holds else FAILS,
                f"{check.cases} cases, largest deviation {float(check.deviation):.4g} {check.at}".rstrip(),
            )
            for check in self.rules
        ]
        checks += [
            Check("accepted tokens", row.case, HOLDS, ", ".join(f"{rule} {mean}" for rule, mean in row.mean.items()))
            for row in self.accepted
        ]
        checks += [Check("exact law", name, LEFT, "time ran out") for name in self.left]
        controls = [
            ControlCheck(
                check.mutant.name,
                check.mutant.fault,
                check.mutant.killer,
                check.killed,
                f"total variation {float(check.deviation):.4f}",
            )
            for check in self.mutants
        ]
        kinds = {"rules": str(len(self.rules)), "arithmetic": "rational, every outcome of the randomness"}
        return Report("rules", "every rule", tuple(checks), tuple(controls), NOT_COVERED, kinds, self.seconds)

    def record(self) -> dict[str, Any]:
        """Returns the report as JSON has it; a fraction stands as text, its value beside it."""
        return {
            "holds": self.holds,
            "faults": list(self.faults),
            "not_covered": list(self.not_covered),
            "seconds": self.seconds,
            "rules": [
                {
                    "rule": check.rule,
                    "lossless": check.lossless,
                    "cases": check.cases,
                    "deviation": float(check.deviation),
                    "at": check.at,
                    "holds": check.holds,
                }
                for check in self.rules
            ],
            "accepted": [
                {
                    "case": row.case,
                    "mean": {rule: float(mean) for rule, mean in row.mean.items()},
                    "tokens_per_step": {rule: float(mean + 1) for rule, mean in row.mean.items()},
                    "exact": {rule: str(mean) for rule, mean in row.mean.items()},
                }
                for row in self.accepted
            ],
            "mutants": [
                {
                    "name": check.mutant.name,
                    "fault": check.mutant.fault,
                    "killer": check.mutant.killer,
                    "deviation": float(check.deviation),
                    "killed": check.killed,
                }
                for check in self.mutants
            ],
        }


def audit_rules(progress: Progress = lambda what: None, minutes: Minutes | None = None) -> RulesReport:
    """Returns the audit of every rule in the registry. progress: is told what is enumerated next.

    What does not fit into the minutes is left out, and said to be; mutants are always tried.
    """
    minutes = minutes or Minutes()
    checks: list[RuleCheck] = []
    left = []
    for name in RULES.names():
        if not minutes.fits("rule"):
            left.append(name)
            continue
        progress(f"rule {name}")
        before = minutes.spent
        checks.append(check_rule(_in_fractions(RULES.get(name)())))
        minutes.took("rule", minutes.spent - before)
    progress("accepted tokens")
    accepted = tuple(expected())
    mutants = []
    for mutant in MUTANTS:
        progress(f"mutant {mutant.name}")
        mutants.append(MutantCheck(mutant, mutant.deviation()))
    nothing = [] if checks else ["nothing was checked: every rule was left out"]
    faults = (*_broken(checks), *_out_of_order(accepted), *_survivors(mutants), *nothing)
    return RulesReport(tuple(checks), accepted, tuple(mutants), faults, minutes.spent, tuple(left))


def check_rule(rule: Rule) -> RuleCheck:
    """Returns the largest deviation of a rule; a lossy one is tried on chains until the first is found."""
    largest, at, cases = Fraction(0), "", 0
    for case, pair in _cases(rule):
        law = emitted(rule, pair.target, case.drafting(pair.draft), case.sizes, case.horizon)
        deviation = total_variation(law, joint(pair.target, case.horizon))
        cases += 1
        if deviation > largest:
            largest, at = deviation, f"{case.name}, {pair.name}"
            if not rule.lossless:
                break
    return RuleCheck(rule.name, rule.lossless, cases, largest, at)


def _cases(rule: Rule) -> Iterator[tuple[Case, Pair]]:
    return ((case, pair) for case in CASES for pair in PAIRS if case.fits(rule, pair))


def _in_fractions(rule: Rule) -> Rule:
    """Returns the rule with a parameter that keeps rational arithmetic rational."""
    return Lenience(Fraction(1, 2)) if isinstance(rule, Lenience) else rule


def expected() -> Iterator[Accepted]:
    """Yields what each lossless rule accepts, chains first, on the toy and on random pairs."""
    pairs = [TOY, Pair("random", random_table(1), random_table(2)), Pair("near", _near(1, 2), random_table(2))]
    for pair in pairs:
        for length in (1, 2, 3):
            yield accepted_by_rule(f"{pair.name}, chain of {length}", pair, chain_from(pair.draft), length)
    for pair in pairs[1:]:
        tree = tree_from(pair.draft, BRANCHES)
        mean = {name: accepted_mean(RULES.get(name)(), pair.target, tree, 4) for name in ("rejection", "traversal")}
        yield Accepted(f"{pair.name}, branches", mean)


def accepted_by_rule(name: str, pair: Pair, drafting: Drafting, length: int) -> Accepted:
    """Returns the expected number of a chain's tokens that each lossless rule accepts."""
    mean = {"coupled": coupled_mean(pair.target, pair.draft, length)}
    for rule in ("rejection", "block", "traversal"):
        mean[rule] = accepted_mean(RULES.get(rule)(), pair.target, drafting, length)
    return Accepted(name, mean)


def _near(target: int, draft: int) -> Table:
    """Returns a target that is a quarter of one random table and three quarters of another."""
    far, close = random_table(target), random_table(draft)
    return lambda tokens: far(tokens) / 4 + close(tokens) * Fraction(3, 4)


def _broken(checks: list[RuleCheck]) -> Iterator[str]:
    for check in checks:
        if not check.holds and check.lossless:
            yield f"rule {check.rule} is off by {float(check.deviation):.3g} in total variation ({check.at})"
        elif not check.holds:
            yield f"rule {check.rule} is called lossy, and no case shows it"


def _out_of_order(accepted: tuple[Accepted, ...]) -> Iterator[str]:
    for row in accepted:
        if "block" not in row.mean:
            continue
        if row.mean["block"] < row.mean["rejection"]:
            yield f"block accepts less than rejection ({row.case})"
        if row.mean["traversal"] != row.mean["block"]:
            yield f"traversal of a chain accepts another number than block ({row.case})"
    toy = next(row for row in accepted if row.case == f"{TOY.name}, chain of 2")
    for rule, mean in TOY_ACCEPTED.items():
        if toy.mean[rule] != mean:
            yield f"{rule} accepts {toy.mean[rule]} of the toy's draft, not {mean}"


def _survivors(mutants: list[MutantCheck]) -> Iterator[str]:
    for check in mutants:
        if not check.killed:
            yield f"mutant {check.mutant.name!r} survives {check.mutant.killer}"
