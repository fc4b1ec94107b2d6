"""Drafts from a model of another vocabulary, losslessly (Timor et al. 2025, "Accelerating LLM inference with lossless
speculative decoding algorithms for heterogeneous vocabularies").

*Token by token*: the draft model is shown in the target's tokens. Its law is restricted to the tokens that both have
and read at the target's ids, so a rule tests true probabilities, or both draw with one noise (`Translated`, which any
drafter of models takes). *String by string*: it writes in its own tokens, and what it wrote is tokenised anew and
proposed as tokens that were chosen, not drawn (`StringDrafter`). Either way the rule alone decides what is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError, VocabularyMismatch
from outpace.types import (
    EMPTY,
    Budget,
    Context,
    Draft,
    Drafter,
    DraftSession,
    LawMaker,
    Prompt,
    Scores,
    Step,
    Target,
    TargetSession,
    Verdict,
)

Ids = NDArray[np.int64]

ABSENT = -1e4
"""The logit of a token that the draft model lacks: never drawn, unless a request allows no other."""

SLICE = 16
"""Tokens of the draft in one pass at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """Between a target's tokens and a draft's.

    target_ids, draft_ids: [shared] the ids of each token that both have. span: the draft's ids of a target's token.
    decode: bytes of the target's ids. encode_draft, decode_draft: text to the draft's ids, and ids to bytes.
    encode: text to the target's ids.
    """

    target_ids: Ids
    draft_ids: Ids
    span: Callable[[int], tuple[int, ...]]
    decode: Callable[[Sequence[int]], bytes]
    encode: Callable[[str], list[int]]
    encode_draft: Callable[[str], list[int]]
    decode_draft: Callable[[Sequence[int]], bytes]


class Translated:
    """A draft model as a Target in another target's tokens. Scores chains; a token that it lacks is `ABSENT`.

    mode: "token" or "string", what `make` drafts by.
    """

    scores_trees = False
    hidden_layers = 0
    bit_exact = False

    def __init__(self, model: Target, translation: Translation, vocab_size: int, mode: str = "token") -> None:
        if mode not in ("token", "string"):
            raise UsageError(f"translate must be 'token' or 'string', got {mode!r:.40}")
        if not len(translation.target_ids):
            raise VocabularyMismatch(f"{model.name} has no token in common with the target: name another draft model")
        self.model = model
        self.translation = translation
        self.mode = mode
        self.name = f"{model.name}, translated {mode} by {mode}"
        self.engine = model.engine
        self.threads = model.threads
        self.vocab_size = vocab_size
        self.eos_ids: frozenset[int] = frozenset()
        self.max_length = model.max_length
        self.weight_bytes = model.weight_bytes

    @property
    def drafter(self) -> str:
        """The name of the drafter that such a draft model is for."""
        return "model" if self.mode == "token" else "translate"

    def spans(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        return [self.translation.span(id) for id in ids]

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        if taps:
            raise UsageError(f"{self.name} offers no hidden states")
        spans = self.spans(prompt.ids)
        before = [id for span in spans[:-1] for id in span]
        inner, _ = self.model.open(Prompt((*before, spans[-1][0])))
        return TranslatedSession(self, inner, [len(span) for span in spans[:-1]], spans[-1]), Context()

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        own = cast("Sequence[tuple[TranslatedSession, Draft]]", work)
        found = self.model.score_many([(session.inner, session.spelt(draft)) for session, draft in own])
        return [self._read(session, scores) for (session, _), scores in zip(own, found, strict=True)]

    def _read(self, session: TranslatedSession, scores: Scores) -> Scores:
        """Returns the rows after each whole token of the target, at the target's ids."""
        rows = np.asarray(scores.logits, np.float32)[session.ends]
        logits = np.full((len(rows), self.vocab_size), ABSENT, np.float32)
        logits[:, self.translation.target_ids] = rows[:, self.translation.draft_ids]
        return Scores(logits)


class TranslatedSession:
    """One request. The draft's cache holds the spans of whole tokens of the target; `sizes` are their lengths."""

    def __init__(self, owner: Translated, inner: TargetSession, sizes: list[int], last: tuple[int, ...]) -> None:
        self.inner = inner
        self._owner = owner
        self._sizes = sizes
        self._last = last
        self._spans: list[tuple[int, ...]] = []
        self._spelt: Draft = EMPTY
        self.ends: list[int] = []

    @property
    def length(self) -> int:
        """Tokens of the target in the cache."""
        return len(self._sizes)

    def spelt(self, draft: Draft) -> Draft:
        """Returns the chain in the draft's tokens: the rest of the last token, then every token of `draft`."""
        if not draft.is_chain:
            raise UsageError(f"{self._owner.name} scores chains, got a tree")
        self._spans = [self._last, *self._owner.spans(draft.tokens)]
        self.ends = [int(end) - 1 for end in np.cumsum([len(span) for span in self._spans])]
        self._spelt = Draft.chain([id for span in self._spans for id in span][1:])
        return self._spelt

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        kept = self._spans[: len(verdict.path) + 1]
        following = self._owner.translation.span(verdict.next_token)
        nodes = sum(map(len, kept)) - 1
        self.inner.commit(self._spelt, Verdict(tuple(range(nodes)), following[0]))
        self._sizes += [len(span) for span in kept]
        self._last = following

    def rewind(self, length: int, last: int) -> None:
        if not 0 <= length <= self.length:
            raise UsageError(f"length must be in [0, {self.length}], got {length}")
        self._last = self._owner.translation.span(last)
        self.inner.rewind(sum(self._sizes[:length]), self._last[0])
        del self._sizes[length:]

    def close(self) -> None:
        self.inner.close()


class StringSession:
    """One request: the draft model writes on its own tokenisation of the text, greedily, and is read as text."""

    def __init__(self, owner: Translated, prompt: Prompt) -> None:
        self._owner = owner
        self._committed = list(prompt.ids)
        self._cache: TargetSession | None = None
        self._held: list[int] = []

    def propose(self, length: int) -> Draft:
        words = self._owner.translation
        text = words.decode(self._committed).decode(errors="ignore")
        known = words.encode_draft(text)
        if not known:
            return EMPTY
        written = self._write(known, length)
        new = words.decode_draft(written).decode(errors="ignore")
        return Draft.chain(self._retokenised(new)[:length])

    def _write(self, known: list[int], length: int) -> list[int]:
        """Returns what the draft model goes on with, after the text that it now knows."""
        model = self._owner.model
        if self._cache is None:
            self._cache, _ = model.open(Prompt(tuple(known)))
        else:
            shared = next(
                (i for i, (a, b) in enumerate(zip(self._held, known, strict=False)) if a != b),
                min(len(self._held), len(known)),
            )
            shared = min(shared, len(known) - 1, self._cache.length)
            self._cache.rewind(shared, known[shared])
        unseen = known[self._cache.length + 1 :]
        while len(unseen) >= SLICE:
            chunk = Draft.chain(unseen[: SLICE - 1])
            model.score_many([(self._cache, chunk)])
            self._cache.commit(chunk, Verdict(tuple(range(SLICE - 1)), unseen[SLICE - 1]))
            unseen = unseen[SLICE:]
        pending, written = Draft.chain(unseen), list[int]()
        for _ in range(length):
            [scores] = model.score_many([(self._cache, pending)])
            token = int(np.argmax(np.asarray(scores.logits[-1])))
            self._cache.commit(pending, Verdict(tuple(range(len(pending))), token))
            pending = EMPTY
            written.append(token)
        self._held = [*known, *written][: self._cache.length]
        return written

    def _retokenised(self, new: str) -> list[int]:
        """Returns the target's tokens of new text, joined to the last committed token where that changes nothing."""
        words = self._owner.translation
        last = self._committed[-1]
        with_last = words.encode(words.decode([last]).decode(errors="ignore") + new)
        return with_last[1:] if with_last[:1] == [last] else words.encode(new)

    def observe(self, step: Step, scores: Scores) -> None:
        self._committed += step.tokens

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()
            self._cache = None


class StringDrafter:
    """Proposes the target's tokens of what a model of another vocabulary writes; chosen, so q is 1 on each."""

    name = "translate"
    drafts_trees = False
    self_limiting = False
    taps: tuple[int, ...] = ()

    def __init__(self, model: Translated) -> None:
        self.model = model
        self.vocab_size = model.vocab_size
        self.weight_bytes = model.weight_bytes

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return StringSession(self.model, prompt)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [
            cast(StringSession, session).propose(min(budget.depth, budget.nodes)) if budget.depth else EMPTY
            for session, budget in work
        ]


def make(target: Target, draft: Any = None) -> Drafter:
    if not isinstance(draft, Translated):
        raise UsageError(
            "drafter 'translate' needs a draft model of another vocabulary: name one with draft=... and "
            "translate='string' (--draft MODEL --translate string)"
        )
    return StringDrafter(draft)
