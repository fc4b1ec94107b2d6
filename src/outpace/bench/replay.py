"""A recorded text in the place of a target: what a drafter would have drafted and had accepted, at no passes' cost.

Under a rule that keeps the text (greedy under any lossless one, sampled under one that shares noise) the text with
drafts is the text without, so replaying it is exact: the steps are those that decoding with drafts would take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from outpace.errors import UsageError
from outpace.types import Context, Draft, Prompt, Scores, Target, TargetSession, Verdict

_SURE = 1e4
"""Logit of the recorded token, above 0 for all others: no noise and no temperature of use overcomes it."""


class ReplayTarget:
    """A Target that emits recorded continuations. texts: prompt -> its continuation; like: whose figures it has."""

    engine = "replay"
    scores_trees = True
    bit_exact = True
    hidden_layers = 0
    weight_bytes = 0
    kv_bytes_per_token = 0

    def __init__(self, texts: Mapping[tuple[int, ...], Sequence[int]], like: Target) -> None:
        self._texts = dict(texts)
        self.name = like.name
        self.threads = like.threads
        self.vocab_size = like.vocab_size
        self.eos_ids = like.eos_ids
        self.max_length = like.max_length

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[ReplaySession, Context]:
        """Returns a session at the beginning of the prompt's text. Raises UsageError for a prompt without one."""
        if taps:
            raise UsageError("a recorded text has no hidden states: replay drafters that need none")
        if prompt.ids not in self._texts:
            raise UsageError("there is no recorded text for this prompt")
        return ReplaySession(prompt.ids, self._texts[prompt.ids]), Context(hidden=None)

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        """Returns logits that leave no doubt about the recorded token; after a token that is not, the least id."""
        return [
            Scores(self._logits(session, draft))
            for session, draft in cast("Sequence[tuple[ReplaySession, Draft]]", work)
        ]

    def _logits(self, session: ReplaySession, draft: Draft) -> np.ndarray:
        logits = np.zeros((1 + len(draft), self.vocab_size), np.float32)  # [N + 1, V]
        logits[0, session.following(())] = _SURE
        for node in range(len(draft)):
            path = tuple(draft.tokens[i] for i in draft.path_to(node))
            logits[node + 1, session.following(path)] = _SURE
        return logits

    def embed(self, ids: Sequence[int]) -> np.ndarray:
        raise UsageError("a recorded text has no embeddings: replay drafters that need none")

    def head(self, hidden: np.ndarray) -> np.ndarray:
        raise UsageError("a recorded text has no head: replay drafters that need none")


class ReplaySession:
    """How far a text has been replayed; a TargetSession."""

    taps: tuple[int, ...] = ()

    def __init__(self, prompt: Sequence[int], text: Sequence[int]) -> None:
        self._text = (*prompt, *text)
        self.length = len(prompt) - 1

    def following(self, path: tuple[int, ...]) -> int:
        """Returns the recorded token after the committed ones and `path`; 0 where the path left the text."""
        start = self.length + 1
        end = start + len(path)
        on_text = end < len(self._text) and self._text[start:end] == path
        return self._text[end] if on_text else 0

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        self.length += len(verdict.path) + 1

    def rewind(self, length: int, last: int) -> None:
        self.length = length

    def close(self) -> None:
        pass
