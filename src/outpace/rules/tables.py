"""Rules on laws that the caller already has, as arrays of probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace.errors import UsageError
from outpace.noise import RoundNoise, gumbel
from outpace.numerics import log
from outpace.rules.coupled import Coupled
from outpace.rules.rejection import Rejection
from outpace.types import Array, Draft, Noise, Verdict


class TableLaw:
    """The law given by an array of probabilities [V]; its draw is argmax(ln p + Gumbel(seed, choice, position))."""

    def __init__(self, probs: Array, seed: int = 0, choice: int = 0, position: int = 0) -> None:
        self._probs = probs
        self._key = (seed, choice, position)

    def draw(self) -> int:
        """Returns the token that the Gumbel noise of this place chooses; one of probability 0 never."""
        p = np.asarray(self._probs, dtype=np.float64)
        survivors = np.flatnonzero(p > 0)
        if not len(survivors):
            raise UsageError("probabilities must have a positive sum, got none above 0")
        return int(survivors[np.argmax(log(p[survivors]) + gumbel(*self._key, survivors))])

    def probs(self) -> Array:
        """Returns the array as it was given."""
        return self._probs


def rejection_verify(
    draft_tokens: Sequence[int],
    target_probs: Array,
    draft_probs: Array | None = None,
    *,
    noise: Noise,
) -> Verdict:
    """Returns how many of a chain's g tokens the rule `rejection` accepts (`len(verdict.path)`), and the token after.

    target_probs: [g + 1, V], row i the target's law of draft token i given those before it, row g the law of the
    bonus. draft_probs: [g, V], row i the law that token i was drawn from; None = chosen without randomness. noise:
    `RoundNoise(seed, choice, committed)`, with another `committed` (tokens so far) in every round.
    Raises UsageError where shapes or token ids disagree.
    """
    draft = _chain(draft_tokens, target_probs, draft_probs)
    return Rejection()(draft, [TableLaw(row) for row in target_probs], noise)


def coupled_verify(draft_tokens: Sequence[int], target_probs: Array, *, seed: int, position: int) -> Verdict:
    """Returns how many of a chain's g tokens the rule `coupled` accepts, and the token after.

    target_probs: [g + 1, V] as in `rejection_verify`. position: of the first draft token, tokens committed so far.
    However the draft was made the text is the same; one drawn with `TableLaw(q, seed, 0, position + i).draw()` is
    accepted most often.
    """
    draft = _chain(draft_tokens, target_probs, None)
    laws = [TableLaw(row, seed, 0, position + i) for i, row in enumerate(target_probs)]
    return Coupled()(draft, laws, RoundNoise(seed, 0, position))


def _chain(tokens: Sequence[int], target_probs: Array, draft_probs: Array | None) -> Draft:
    g = len(tokens)
    if len(target_probs.shape) != 2 or target_probs.shape[0] != g + 1:
        raise UsageError(f"{g} draft tokens need target_probs of shape [{g + 1}, V], got {list(target_probs.shape)}")
    if draft_probs is not None and (len(draft_probs.shape) != 2 or draft_probs.shape[0] != g):
        raise UsageError(f"{g} draft tokens need draft_probs of shape [{g}, V], got {list(draft_probs.shape)}")
    vocab = target_probs.shape[1] if draft_probs is None else min(target_probs.shape[1], draft_probs.shape[1])
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError(f"draft tokens must be in [0, {vocab}), got {token}")
    return Draft.chain(
        [int(token) for token in tokens], None if draft_probs is None else [TableLaw(q) for q in draft_probs]
    )
