"""Names stand for parts, and a wrong name is answered with the right ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from refusals import refused

from outpace.drafters.none import make
from outpace.errors import UsageError
from outpace.registry import DRAFTERS, RULES, Registry


def test_a_wrong_name_lists_the_known_ones():
    known = ", ".join(DRAFTERS.names())
    with refused(UsageError, f"unknown drafter 'oracle'; known: {known}"):
        DRAFTERS.get("oracle")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ngrams", "ngram or unigram"), ("NGRAM", "ngram or unigram"), ("eagl", "eagle"), ("qauntized", "quantized")],
)
def test_a_near_miss_is_answered_with_what_it_may_have_meant(name, meant):
    known = ", ".join(DRAFTERS.names())
    with refused(UsageError, f"unknown drafter {name!r}: did you mean {meant}? known: {known}"):
        DRAFTERS.get(name)


def test_every_name_is_found():
    for registry in (DRAFTERS, RULES):
        for name in registry.names():
            assert callable(registry.get(name))


def test_a_rule_goes_by_its_own_name():
    assert [RULES.get(name)().name for name in RULES.names()] == list(RULES.names())


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("outpace_nothing:make", "No module named 'outpace_nothing'"),
        ("outpace.drafters.none:gone", "module 'outpace.drafters.none' has no attribute 'gone'"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(monkeypatch, place, why):
    point = EntryPoint("mine", place, "outpace.drafters")
    monkeypatch.setattr("outpace.registry.entry_points", lambda group: [point])
    with refused(UsageError, f"drafter 'mine' is a plugin, {place}, that cannot be loaded: {why}"):
        Registry("drafter", "outpace.drafters", {}).get("mine")


def test_a_drafter_of_models_needs_one():
    line = "drafter 'model' needs a draft model: name one with draft=... (--draft on the command line)"
    with refused(UsageError, line):
        DRAFTERS.get("model")(None, None)


def test_a_plugin_is_found_by_its_entry_point(monkeypatch):
    point = EntryPoint("mine", "outpace.drafters.none:make", "outpace.drafters")
    monkeypatch.setattr("outpace.registry.entry_points", lambda group: [point] if group == "outpace.drafters" else [])
    registry = Registry("drafter", "outpace.drafters", {"ngram": "outpace.drafters.ngram:make"})
    assert registry.names() == ("ngram", "mine")
    assert registry.get("mine") is make
