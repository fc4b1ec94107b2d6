"""Sliding windows: which layers attend to the latest positions only."""

from __future__ import annotations

from dataclasses import replace

from outpace.errors import BadModelFile
from outpace.native.facts import Facts, is_off
from outpace.native.metadata import brief
from outpace.native.weights import ModelConfig

KEYS = frozenset(("attention.sliding_window", "attention.sliding_window_pattern"))


def with_windows(facts: Facts, config: ModelConfig, full_every: int | None = None) -> ModelConfig:
    """Returns the config with the windows that the facts state, of every layer unless they say which.

    full_every: without such a list every n-th layer attends to everything. Raises BadModelFile.
    """
    window = facts.get("attention.sliding_window")
    if is_off(window):
        return config
    if type(window) is not int or window < 1:
        raise BadModelFile(f"{facts.label('attention.sliding_window')} must be a count, got {brief(window)}")
    if window >= config.context_length:
        return config
    name, every = "attention.sliding_window_pattern", full_every
    if type(facts.get(name)) is int and facts.get(name) >= 1:
        flags, every = None, facts.get(name)
    else:
        flags = facts.flags(name, config.layers)
    if flags is None:
        flags = tuple(every is None or (layer + 1) % every != 0 for layer in range(config.layers))
    return replace(config, windows=tuple(window if flag else 0 for flag in flags))
