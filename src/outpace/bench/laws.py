"""Both laws along a text of the target's: what a draft model's tokens would be worth, before anything is drafted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.theory.chains import Along
from outpace.types import EMPTY, Observation, Prompt, Verdict

if TYPE_CHECKING:
    from outpace.api import Model

Laws = list[NDArray[np.float64]]


@dataclass
class _Recorded:
    tokens: list[int] = field(default_factory=list)
    laws: Laws = field(default_factory=list)

    def __call__(self, seen: Observation) -> None:
        self.laws.append(seen.laws[0].probs())
        self.tokens += seen.step.tokens


def along(model: Model, prompt: str, *, seed: int, max_tokens: int, temperature: float = 1.0) -> Along:
    """Returns a plain sample of the target's with its laws, and the draft model's laws on the same text.

    Raises UsageError for a model without a draft.
    """
    found, helper = _Recorded(), model.draft
    if helper is None:
        raise UsageError("laws of a draft need a draft model: load the model with one")
    generation = model.stream(
        prompt, observer=found, drafter="none", temperature=temperature, seed=seed, max_tokens=max_tokens
    )
    ids, laws = list(generation.round.committed), generation.round.laws
    generation.run()
    draft_laws: Laws = []
    session, _ = helper.open(Prompt(tuple(ids)))
    try:
        for token in found.tokens:
            [scores] = helper.score_many([(session, EMPTY)])
            draft_laws.append(laws.after(_fitted(scores.logits[0], model.target.vocab_size), ids, []).probs())
            session.commit(EMPTY, Verdict((), token))
    finally:
        session.close()
    return Along(found.laws, draft_laws, found.tokens)


def _fitted(row: NDArray[np.float32], vocab_size: int) -> NDArray[np.float32]:
    """Returns the draft's row cut to the target's head, or padded with what is never drawn."""
    return np.pad(row[:vocab_size], (0, max(0, vocab_size - len(row))), constant_values=-np.inf)
