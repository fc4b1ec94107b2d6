"""From the options that name a model to what `outpace.load` is asked."""

from __future__ import annotations

from outpace.cli.loading import EngineChoice


def test_what_was_not_given_is_not_asked_for() -> None:
    assert EngineChoice().given == {}


def test_a_zero_and_an_empty_word_are_given() -> None:
    assert EngineChoice(exit_layer=0).given == {"exit_layer": 0}
    assert EngineChoice(device="", pack="").given == {"device": "", "pack": ""}
