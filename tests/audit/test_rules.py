"""The audit of the rules: exact for the lossless ones, and its mutants die."""

from __future__ import annotations

import json

import pytest

from outpace.audit import rules as audit
from outpace.audit.broken import ForwardBlock
from outpace.audit.cases import CASES, PAIRS
from outpace.audit.drafting import chain_from
from outpace.audit.enumerate import emitted, joint, random_table, total_variation
from outpace.audit.mutants import MUTANTS, Mutant
from outpace.rules import RULES, Rejection
from outpace.types import Rule

LOSSLESS = [rule for rule in RULES.values() if rule.lossless]
SMALL = tuple(case for case in CASES if not case.large)
TWO_ROUNDS = tuple(case for case in CASES if len(case.sizes) > 1)


@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: rule.name)
def test_a_lossless_rule_has_exactly_the_targets_law(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CASES", SMALL)
    check = audit.check_rule(rule)
    assert (check.deviation, check.at) == (0, "")
    assert check.cases > 50


@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: rule.name)
def test_so_have_two_rounds_in_a_row(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CASES", TWO_ROUNDS)
    monkeypatch.setattr(audit, "PAIRS", (PAIRS[0], PAIRS[2]))
    assert audit.check_rule(rule).deviation == 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_enumeration_kills(mutant: Mutant) -> None:
    assert audit.MutantCheck(mutant, mutant.deviation()).killed


def test_the_trunk_of_the_block_mutants_is_sound() -> None:
    target, q = random_table(21), random_table(22)
    assert emitted(ForwardBlock(), target, chain_from(q), (3,), 4) == joint(target, 4)


def test_argmax_drafts_with_a_soft_law_fail_as_published() -> None:
    mutant = next(one for one in MUTANTS if one.name == "argmax draft, soft law")
    law = emitted(mutant.rule, mutant.target, mutant.drafting, (1,), 1)
    assert [float(law.get((token,), 0)) for token in range(3)] == [0.6, 0, 0.4]


def test_the_report_holds_and_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CASES", CASES[:3])
    report = audit.audit_rules()
    record = json.loads(json.dumps(report.record()))
    assert (report.faults, record["holds"]) == ((), True)
    assert [row["rule"] for row in record["rules"] if not row["lossless"]] == [
        "typical", "lenience", "lenience-greedy",
    ]  # fmt: skip
    toy = next(row for row in record["accepted"] if row["case"] == "toy, chain of 2")
    assert (toy["exact"]["rejection"], toy["exact"]["block"]) == ("10/9", "11/9")


def test_a_surviving_mutant_and_a_false_claim_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    class Claims(Rejection):
        lossless = False

    right = Mutant("no fault", "", "enumeration", Rejection(), chain_from(random_table(1)), (1,), 2, random_table(2))
    monkeypatch.setattr(audit, "CASES", CASES[:3])
    monkeypatch.setattr(audit, "MUTANTS", (right,))
    monkeypatch.setattr(audit, "RULES", Registry({"typical": RULES["typical"], "x": Claims(), "y": Broken()}))
    monkeypatch.setattr(audit, "expected", lambda: iter(()))
    monkeypatch.setattr(audit, "_out_of_order", lambda accepted: iter(()))
    faults = audit.audit_rules().faults
    assert faults[0] == "rule rejection is called lossy, and no case shows it"
    assert faults[1].startswith("rule rejection is off by ")
    assert faults[2] == "mutant 'no fault' survives enumeration"
    assert len(faults) == 3


class Registry:
    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules

    def names(self) -> tuple[str, ...]:
        return tuple(self._rules)

    def get(self, name: str):
        return lambda: self._rules[name]


class Broken(Rejection):
    """Never accepts."""

    def __call__(self, draft, laws, noise):
        return super().__call__(draft, laws, Refusing(noise))


class Refusing:
    def __init__(self, noise) -> None:
        self.categorical = noise.categorical

    def accept(self, purpose, node, p, q) -> bool:
        return False


def test_deviation_is_a_total_variation() -> None:
    law = emitted(Broken(), random_table(1), chain_from(random_table(2)), (1,), 2)
    assert 0 < total_variation(law, joint(random_table(1), 2)) <= 1
