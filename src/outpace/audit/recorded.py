"""A target that remembers its rows: where bits depend on the path alone, a row need be scored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from outpace.types import EMPTY, Context, Draft, Prompt, Scores, Target, TargetSession, Verdict

Row: TypeAlias = npt.NDArray[np.float32]
Tokens: TypeAlias = tuple[int, ...]

MOST_BYTES = 256 << 20


class RecordedSession:
    """One request: its tokens; the cache is the target's business, and opened only for rows that are not known."""

    def __init__(self, ids: Tokens) -> None:
        self.tokens = ids

    @property
    def length(self) -> int:
        return len(self.tokens) - 1

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        self.tokens += verdict.tokens(draft)

    def rewind(self, length: int, last: int) -> None:
        self.tokens = (*self.tokens[:length], last)

    def close(self) -> None:
        pass


class Recorded:
    """`target`, each of whose rows is scored when it is first asked for; remembered while there is room."""

    def __init__(self, target: Target) -> None:
        self.inner = target
        self.name, self.engine, self.threads = target.name, target.engine, target.threads
        self.vocab_size, self.eos_ids, self.max_length = target.vocab_size, target.eos_ids, target.max_length
        self.scores_trees, self.hidden_layers = True, 0
        self.bit_exact, self.weight_bytes = target.bit_exact, target.weight_bytes
        self._rows: dict[Tokens, Row] = {}
        self._most = MOST_BYTES // (4 * target.vocab_size)
        self.passes = 0

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        return RecordedSession(prompt.ids), Context()

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        return [self._scores(cast(RecordedSession, session).tokens, draft) for session, draft in work]

    def row(self, tokens: Tokens) -> Row:
        """Returns [V] the logits after these tokens."""
        return cast(Row, self._scores(tokens, EMPTY).logits[0])

    def _scores(self, tokens: Tokens, draft: Draft) -> Scores:
        paths = [tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(-1, len(draft))]
        found = [self._rows.get(tokens + path) for path in paths]
        if all(row is not None for row in found):
            return Scores(np.stack(cast("list[Row]", found)))
        session, _ = self.inner.open(Prompt(tokens))
        [scores] = self.inner.score_many([(session, draft)])
        logits = np.array(scores.logits, dtype=np.float32)
        session.close()
        self.passes += 1
        for path, row in zip(paths, logits, strict=True):
            if len(self._rows) < self._most:
                self._rows.setdefault(tokens + path, row.copy())
        return Scores(logits)
