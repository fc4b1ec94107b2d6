"""`audit law`: exact laws, remembered rows, and a test that passes right loops and sees wrong ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import outpace
from fakes import TableTarget
from outpace.audit import law as audit
from outpace.audit.broken import CorrectsFromTarget
from outpace.audit.law import MUTANT_SETTING, QUICK_LAW, LawExtent, Laws, audit_law
from outpace.audit.law_controls import seen_on_its_table, table_controls
from outpace.audit.loops import Loop
from outpace.audit.mutants import MUTANTS, Mutant
from outpace.audit.outcomes import OTHER, outcomes
from outpace.audit.recorded import Recorded
from outpace.audit.report import Minutes
from outpace.audit.statistics import fit
from outpace.audit.table import TableDrafter, laws_of, loop_of, noise_of
from outpace.rules import Rejection
from outpace.types import Draft, Prompt

P = np.array([0.5, 0.3, 0.2, 0.0])
FEW = ("residual forgotten", "a round's noise reused", "penalty once per block", "siblings sorted")


@pytest.fixture(scope="module")
def tiny(tiny_llama):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    with outpace.load(tiny_llama, threads=1, context=256) as model:
        yield model


def test_cells_are_a_partition_with_exact_probabilities():
    found = outcomes(lambda tokens: P, 2, least=0.1, most=10)
    assert sum(found.law.values()) == pytest.approx(1)
    assert found.law[0, 0] == pytest.approx(0.25)
    assert found.law[1, OTHER] == pytest.approx(0.3 * 0.5)
    texts = Counter({(a, b): 1 for a in range(3) for b in range(3)})
    assert set(found.count(texts)) == set(found.law)
    assert found.cell((0, 3)) is None
    assert found.cell((2, 1)) == (2, OTHER)


def test_only_so_many_beginnings_are_split():
    found = outcomes(lambda tokens: P, 3, least=0.01, most=2)
    assert set(found.inner) == {(), (0,)}
    assert found.cell((1, 2, 0)) == (1,)


def test_remembered_rows_are_the_targets_own():
    target = TableTarget(max_length=64)
    recorded = Recorded(target)
    tree = Draft((0, 1, 1, 2), (-1, -1, 0, 0), (None,) * 4)
    for _ in range(2):
        session, _ = recorded.open(Prompt((1, 2)))
        [scores] = recorded.score_many([(session, tree)])
        for node in range(-1, 4):
            path = [tree.tokens[i] for i in tree.path_to(node)]
            assert np.array_equal(scores.logits[node + 1], target.logits([1, 2, *path]))
    assert recorded.passes == 1
    assert target.open_sessions == 0


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name in FEW], ids=lambda mutant: mutant.name)
def test_a_mutant_is_seen_in_the_real_loop(mutant: Mutant):
    assert not seen_on_its_table(mutant).holds


def test_the_right_rule_is_not_seen_there():
    mutant = replace(next(m for m in MUTANTS if m.name == "residual forgotten"), rule=Rejection())
    wrong, right = laws_of(mutant)
    assert wrong == right
    expected = {outcome: float(p) for outcome, p in right.items()}
    assert fit(loop_of(mutant, noise_of(mutant)).counts(range(1500)), expected, 1e-6).holds


def test_a_tiny_model_holds_under_every_rule_and_the_mutants_die(tiny, monkeypatch):
    monkeypatch.setattr(audit, "table_controls", lambda: list(table_controls())[:1])
    report = audit_law(tiny, extent=replace(QUICK_LAW, n=300, live=40))
    assert report.faults == ()
    assert len(report.controls) == 4
    assert {check.group for check in report.checks} >= {
        "law of coupled",
        "law of rejection",
        "law of block",
        "law of traversal",
    }


def test_a_wrong_rule_fails_the_audit(tiny, monkeypatch):
    class Registry:
        def names(self):
            return ("rejection",)

        def get(self, name):
            return CorrectsFromTarget

    monkeypatch.setattr(audit, "RULES", Registry())
    monkeypatch.setattr(audit, "lossless_rules", lambda: ["rejection"])
    monkeypatch.setattr(audit, "_controls", lambda laws: iter(()))
    report = audit_law(tiny, wanted=["ngram"], extent=LawExtent(1500, None, 20, 4, 5, (MUTANT_SETTING,), ()))
    assert any(fault.startswith("law of rejection, chain of 2, min_p 0.1: chi-square") for fault in report.faults)


def test_rows_of_another_target_are_found_out(tiny):
    laws = Laws(tiny, replace(QUICK_LAW, n=20, checked=8))
    laws.recorded.inner = TableTarget(tiny.target.vocab_size, max_length=256)
    found = laws.check("chain", "coupled", laws.prompts[0], MUTANT_SETTING, level=1e-3)
    assert not found.holds
    assert found.evidence.startswith("remembered rows give other texts than the engine")


def test_a_test_that_must_see_a_variation_draws_as_many_texts_as_that_takes(tiny):
    laws = Laws(tiny, replace(QUICK_LAW, n=300, checked=4))
    found = laws.check("chain", "rejection", laws.prompts[0], MUTANT_SETTING, 0.1, level=1e-3)
    assert found.holds
    seen = float(found.evidence.split("a total variation of ")[1].split()[0])
    assert seen <= 0.1


def test_a_target_that_scores_no_trees_is_remembered_too():
    target = TableTarget(max_length=64)
    target.scores_trees = False
    recorded = Recorded(target)
    session, _ = recorded.open(Prompt((1, 2)))
    [scores] = recorded.score_many([(session, Draft.chain((3, 4)))])
    assert np.array_equal(scores.logits[2], target.logits([1, 2, 3, 4]))
    assert target.open_sessions == 0


def test_a_short_audit_still_tries_every_mutant(tiny, monkeypatch):
    monkeypatch.setattr(audit, "table_controls", lambda: list(table_controls())[:1])
    report = audit_law(tiny, extent=replace(QUICK_LAW, n=200), minutes=Minutes(1e-6))
    assert report.count("not covered") == len(report.checks)
    assert len(report.controls) == 4
    assert not report.holds


def test_the_texts_of_a_loop_do_not_depend_on_how_many_share_a_pass():
    target = TableTarget(6, max_length=64)
    loop = Loop(target, TableDrafter(lambda uniforms, committed, size: Draft(), 6), Rejection(), (1,), 3)
    assert [*loop.texts(range(20))] == [text for seed in range(20) for text in loop.texts([seed])]


@pytest.mark.embedded
def test_the_embedded_model_has_the_law(embedded_model):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    with outpace.load(embedded_model, threads=1, context=256) as model:
        report = audit_law(model, extent=QUICK_LAW)
    assert report.faults == ()
    assert len(report.controls) >= 20
