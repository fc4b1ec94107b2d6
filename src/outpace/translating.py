"""What two models' texts have in common, for drafts from another vocabulary."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from outpace.drafters.translate import Translated, Translation
from outpace.text import Text
from outpace.types import Target
from outpace.vocabulary import Kind


def translated(target: Target, text: Text, draft: Target, draft_text: Text, mode: str) -> Translated:
    """Returns the draft model in the target's tokens. mode: "token" or "string". Raises UsageError for another."""
    return Translated(
        draft, translation_of(text, draft_text, target.vocab_size, draft.vocab_size), target.vocab_size, mode
    )


def translation_of(text: Text, draft_text: Text, rows: int, draft_rows: int) -> Translation:
    """Returns how tokens of one vocabulary are spelt in another. rows, draft_rows: of their heads.

    Ordinary tokens are the same where they add the same bytes to a text, control tokens where their names agree.
    """
    theirs = _spelling(draft_text, draft_rows)
    shared = [(id, theirs[key]) for key, id in _spelling(text, rows).items() if key in theirs]
    one_to_one = dict(shared)

    @lru_cache(maxsize=1 << 16)
    def span(id: int) -> tuple[int, ...]:
        known = one_to_one.get(id)
        if known is not None:
            return (known,)
        ids = draft_text.encode(text.piece(id).decode(errors="ignore"), special=False)
        own = ids[len(draft_text.prefix) :] if tuple(ids[: len(draft_text.prefix)]) == draft_text.prefix else ids
        return tuple(own) or (0,)  # a token that adds nothing to the text must still be something to the draft

    def encode_draft(words: str) -> list[int]:
        return draft_text.encode(words, special=True)

    def encode(words: str) -> list[int]:
        ids = text.encode(words, special=False)
        return ids[len(text.prefix) :]

    return Translation(
        target_ids=np.array([id for id, _ in shared], np.int64),
        draft_ids=np.array([id for _, id in shared], np.int64),
        span=span,
        decode=lambda ids: b"".join(map(text.named, ids)),
        encode=encode,
        encode_draft=encode_draft,
        decode_draft=lambda ids: b"".join(map(draft_text.piece, ids)),
    )


def _spelling(text: Text, rows: int) -> dict[tuple[bool, bytes], int]:
    """Returns (control token, bytes) -> id, the lowest where several are spelt alike; padding rows have none."""
    found: dict[tuple[bool, bytes], int] = {}
    kinds = text.vocabulary.kinds
    for id in range(min(rows, len(text.vocabulary))):
        control = kinds[id] in (Kind.CONTROL, Kind.UNKNOWN)
        spelt = text.named(id)
        if spelt:
            found.setdefault((bool(control), spelt), id)
    return found
