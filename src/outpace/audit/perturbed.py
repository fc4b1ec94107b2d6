"""A draft model for any target: the target itself with a fixed error on its logits, right often and wrong often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outpace.types import Context, Draft, Prompt, Scores, Target, TargetSession


class Perturbed:
    """`target`, whose logits are off by the same normal error at every position.

    spread: its standard deviation. The error depends on the token alone, so a row is still a function of its path.
    """

    def __init__(self, target: Target, spread: float = 1.0, seed: int = 0) -> None:
        self.inner = target
        self.name, self.engine, self.threads = f"{target.name}, perturbed", target.engine, target.threads
        self.vocab_size, self.eos_ids, self.max_length = target.vocab_size, target.eos_ids, target.max_length
        self.scores_trees, self.hidden_layers = target.scores_trees, target.hidden_layers
        self.bit_exact, self.weight_bytes = target.bit_exact, target.weight_bytes
        error = np.random.default_rng(seed).standard_normal(target.vocab_size)
        self._error = (spread * error).astype(np.float32)

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        return self.inner.open(prompt, taps)

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        return [
            replace(scores, logits=np.asarray(scores.logits, dtype=np.float32) + self._error)
            for scores in self.inner.score_many(work)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
