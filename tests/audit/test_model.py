"""`audit model` on a tiny model and on the embedded one: it holds, its mutants die, and a broken build fails."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import outpace
from outpace import models
from outpace.api import Model
from outpace.audit.breaking import OneShort, SwapsRows
from outpace.audit.model import QUICK, Extent, audit_model
from outpace.audit.prompts import PROMPTS
from outpace.audit.report import FAILS, NOT_COVERED, Minutes
from outpace.audit.watched import WatchedTarget
from outpace.errors import UsageError
from outpace.registry import DRAFTERS

LEAST = 12
"""Mutants of the loop."""


@pytest.fixture(scope="module")
def tiny(tiny_llama):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    with outpace.load(tiny_llama, threads=1, context=256) as model:
        yield model


def failing_groups(report):
    return {check.group for check in report.checks if check.verdict == FAILS}


def test_every_drafter_holds_and_every_mutant_dies(tiny, tiny_llama):
    report = audit_model(
        tiny, reload=lambda count: outpace.load(tiny_llama, threads=count, context=256), extent=QUICK
    )
    assert report.faults == ()
    assert len(report.controls) >= LEAST
    seen = {check.name for check in report.checks if check.verdict != NOT_COVERED}
    for name in DRAFTERS.names():
        covered = any(each.startswith(name) for each in seen)
        left_out = any(re.search(rf"[(; ]{name}[;)]", line) for line in report.not_covered)
        assert name == "none" or covered or left_out


def test_the_torch_engine_holds_and_every_mutant_dies(tiny_llama, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra 'torch'")
    folder = models.export(tiny_llama, tmp_path / "tiny", "float32")
    with outpace.load(folder, engine="torch", device="cpu", threads=1, context=256) as model:
        report = audit_model(model, extent=replace(QUICK, threads=()), wanted=["ngram", "model"])
    assert report.faults == ()
    assert len(report.controls) >= LEAST
    assert not [line for line in report.not_covered if line.startswith("cache")]


def test_a_build_with_a_fault_fails(tiny):
    short = Model(WatchedTarget(tiny.target, OneShort), tiny.text)
    assert "cache length" in failing_groups(audit_model(short, extent=QUICK, wanted=["model"]))
    swapped = Model(SwapsRows(tiny.target), tiny.text)
    assert "batches" in failing_groups(audit_model(swapped, extent=QUICK, wanted=["model"]))


def test_a_short_audit_lists_what_it_left_out_and_tries_every_mutant(tiny):
    report = audit_model(tiny, extent=QUICK, wanted=["ngram"], minutes=Minutes(1e-6))
    assert {check.verdict for check in report.checks} == {NOT_COVERED}
    assert not report.holds
    assert len(report.controls) >= LEAST
    assert any("time ran out" in line for line in report.not_covered)


@pytest.mark.parametrize("mode", ["token", "string"])
def test_a_draft_of_another_vocabulary_holds(tiny_llama, tiny_qwen2, mode):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    few = Extent(PROMPTS[:2], 12, (3,), (2,), (), (4,), 8, (3,))
    with outpace.load(tiny_llama, draft=tiny_qwen2, translate=mode, threads=1, context=256) as model:
        report = audit_model(model, extent=few, wanted=["model" if mode == "token" else "translate"])
    assert report.faults == ()
    assert report.count(NOT_COVERED) < len(report.checks) / 4


def test_an_unknown_drafter_is_refused(tiny):
    with pytest.raises(UsageError, match="unknown drafter 'nonsense'"):
        audit_model(tiny, wanted=["nonsense"])


@pytest.mark.embedded
def test_the_embedded_model_holds(embedded_model):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    with outpace.load(embedded_model, threads=1, context=256) as model:
        report = audit_model(
            model, reload=lambda count: outpace.load(embedded_model, threads=count, context=256), extent=QUICK
        )
    assert report.faults == ()
    assert len(report.controls) >= LEAST
