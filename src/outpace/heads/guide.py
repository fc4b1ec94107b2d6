"""An `eagle` head as the guide of a tree that grows from counts: the readable form of `csrc/head_guide.cpp`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace import _native
from outpace.contexts import DrawNoise
from outpace.heads.loading import LoadedHead
from outpace.noise import Purpose, keyed_exponential
from outpace.types import Array

LIKELY = 8
"""Continuations that are worth a thought."""

LEAST_SHARE = 1e-3
"""Tokens less probable than this share of the likeliest are not thought of, whatever the noise says of them."""


class ReadableGuide:
    """The law after a session's last committed token; `outpace.contexts.Guide`.

    hidden [n, taps, H], tokens [n]: what was committed and not yet taken in, which a look does. temperature: of the
    law, above 0. noise: what the next token will be drawn with, where that is known; the likely continuations are
    then those that it favours.
    """

    def __init__(
        self,
        head: LoadedHead,
        session: _native.HeadSession,
        hidden: Array,
        tokens: Sequence[int],
        temperature: float = 1.0,
        noise: DrawNoise | None = None,
    ) -> None:
        self._head, self._session = head, session
        self._hidden, self._tokens = hidden, tokens
        self._temperature, self._noise = temperature, noise
        self._law: dict[int, float] = {}
        self._likely: list[int] = []

    def look(self) -> None:
        [row] = self._head.layer.begin(self._session, self._hidden, self._tokens)
        ids = self._head.draft_ids
        below = (row.astype(np.float64) - float(row.max())) / self._temperature
        probs = np.exp(below)
        self._law = dict(zip(ids.tolist(), (probs / probs.sum()).tolist(), strict=True))
        scores = below
        if self._noise is not None:
            seed, choice, place = self._noise
            waiting = keyed_exponential(seed, choice, Purpose.SAMPLE, place, 0, ids)
            scores = np.where(probs >= LEAST_SHARE, below - np.log(waiting), -np.inf)
        best = np.argsort(-scores, kind="stable")[:LIKELY]
        self._likely = ids[best[scores[best] > -np.inf]].tolist()

    def likely(self) -> Sequence[int]:
        return self._likely

    def prob(self, token: int) -> float:
        return self._law.get(token, 0.0)
