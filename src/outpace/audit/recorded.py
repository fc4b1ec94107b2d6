"""A target that remembers its rows: where bits depend on the path alone, a row need be scored once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from outpace.types import EMPTY, Context, Draft, Prompt, Scores, Target, TargetSession, Verdict

Row: TypeAlias = npt.NDArray[np.float32]
Tokens: TypeAlias = tuple[int, ...]

MOST_BYTES = 256 << 20


class RecordedSession:
    """One request: its tokens, the first of them its prompt; the cache is the target's business."""

    def __init__(self, prompt: Tokens) -> None:
        self.prompt = self.tokens = prompt

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
    """`target`, each of whose rows is scored when it is first asked for, all new ones of a call in one pass.

    Rows are remembered while there is room, and until another prompt comes.
    """

    def __init__(self, target: Target) -> None:
        self.inner = target
        self.name, self.engine, self.threads = target.name, target.engine, target.threads
        self.vocab_size, self.eos_ids, self.max_length = target.vocab_size, target.eos_ids, target.max_length
        self.scores_trees, self.hidden_layers = True, 0
        self.bit_exact, self.weight_bytes = target.bit_exact, target.weight_bytes
        self._prompt: Tokens = ()
        self._rows: dict[Tokens, Row] = {}
        self._most = MOST_BYTES // (4 * target.vocab_size)
        self.passes = 0

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        return RecordedSession(prompt.ids), Context()

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        wanted: dict[Tokens, list[Tokens]] = defaultdict(list)
        paths = []
        for session, draft in cast("Sequence[tuple[RecordedSession, Draft]]", work):
            paths.append(after_each(session.tokens, draft))
            wanted[session.prompt] += paths[-1]
        rows = {path: row for prompt, texts in wanted.items() for path, row in self.rows(prompt, texts).items()}
        return [Scores(np.stack([rows[path] for path in each])) for each in paths]

    def rows(self, prompt: Tokens, texts: Iterable[Tokens]) -> dict[Tokens, Row]:
        """Returns [V] the logits after each of these texts, all of which begin with the prompt."""
        if prompt != self._prompt:
            self._prompt, self._rows = prompt, {}
        wanted = dict.fromkeys(texts)
        new = [text for text in wanted if text not in self._rows]
        found = self._scored(prompt, new) if new else {}
        self._rows |= islice(found.items(), self._most - len(self._rows))
        return {text: found[text] if text in found else self._rows[text] for text in wanted}

    def _scored(self, prompt: Tokens, texts: Sequence[Tokens]) -> dict[Tokens, Row]:
        self.passes += 1
        if not self.inner.scores_trees:
            sessions = [self.inner.open(Prompt(text))[0] for text in texts]
            scores = self.inner.score_many([(session, EMPTY) for session in sessions])
            for session in sessions:
                session.close()
            return {text: np.array(one.logits[0], np.float32) for text, one in zip(texts, scores, strict=True)}
        tree, place = tree_of(prompt, texts)
        session, _ = self.inner.open(Prompt(prompt))
        [whole] = self.inner.score_many([(session, tree)])
        session.close()
        return {text: np.array(whole.logits[place[text] + 1], np.float32) for text in texts}


def after_each(tokens: Tokens, draft: Draft) -> list[Tokens]:
    """Returns [N+1] the text that each row of a draft's scores follows."""
    return [tokens, *(tokens + tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(len(draft)))]


def tree_of(prompt: Tokens, texts: Iterable[Tokens]) -> tuple[Draft, dict[Tokens, int]]:
    """Returns a tree that has a node for each beginning of the texts beyond the prompt, and the node of each."""
    place = {prompt: -1}
    parents: list[int] = []
    for text in texts:
        for end in range(len(prompt) + 1, len(text) + 1):
            if text[:end] not in place:
                place[text[:end]] = len(parents)
                parents.append(place[text[: end - 1]])
    tokens = tuple(text[-1] for text, node in place.items() if node >= 0)
    return Draft(tokens, tuple(parents), (None,) * len(tokens)), place
