"""What a head's drafter remembers of a request between drafts."""

from __future__ import annotations

import numpy as np

from outpace.errors import UsageError
from outpace.targets.kept import KeptRows
from outpace.types import Array, Context, Law, LawMaker, Prompt, Scores, Step


class FeatureSession:
    """Committed tokens, and the target's hidden states before each, waiting for the next draft; a DraftSession."""

    def __init__(self, prompt: Prompt, context: Context, laws: LawMaker) -> None:
        if context.hidden is None:
            raise UsageError("a head needs the target's hidden states: open the target with the drafter's taps")
        self.laws = laws
        self.committed = list(prompt.ids)
        self._empty = np.empty((0, *context.hidden.shape[1:]), np.float32)
        self._hidden = KeptRows([context.hidden])
        self._tokens: list[int] = list(prompt.ids[1:])

    def pending(self) -> tuple[Array, list[int]]:
        """Returns what was committed since the last call: hidden states [n, taps, H], and the token after each."""
        hidden, tokens = self._hidden.joined() if self._hidden else self._empty, self._tokens
        self.taken()
        return np.ascontiguousarray(hidden, np.float32), tokens

    def pieces(self) -> tuple[list[tuple[Array, tuple[int, ...] | None]], list[int]]:
        """Returns the same, hidden states as `KeptRows` has them; they wait on until `taken`."""
        return self._hidden.pieces(), self._tokens

    def taken(self) -> None:
        """Forgets what waits."""
        self._hidden, self._tokens = KeptRows(), []

    @property
    def waits(self) -> int:
        """Tokens that the next call of `pending` returns."""
        return len(self._tokens)

    def keep(self, count: int) -> None:
        """Forgets all of them but the last `count`."""
        self._hidden, self._tokens = KeptRows([self._hidden.joined()[-count:].copy()]), self._tokens[-count:]

    def observe(self, step: Step, scores: Scores) -> None:
        if scores.hidden is None:
            raise UsageError("a head needs the target's hidden states with every round's scores")
        self._hidden.add(scores.hidden, step.verdict.path[: len(step.tokens) - 1])
        self._tokens += step.tokens
        self.committed += step.tokens

    def extend(self, row: Array, path: list[int], laws: list[Law]) -> bool:
        """Draws the token after `path` from a row of logits [vocab_size], and adds it and its law to both.

        Returns False, and adds nothing, where the request allows no token that the head has a logit for.
        """
        law = self.laws.after(row, self.committed, path)
        try:
            token = law.draw()
        except UsageError:
            return False
        path.append(token)
        laws.append(law)
        return True

    def close(self) -> None:
        """Forgets the hidden states."""
        self._hidden = KeptRows()
