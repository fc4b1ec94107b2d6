"""Vocabularies of letters, for drafts that speak another language than the target."""

from __future__ import annotations

import numpy as np

from outpace.drafters.translate import Translation

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def translation(target, draft):
    """Returns the translation between two lists of token texts; both spell a text by its longest tokens first."""

    def spell(tokens):
        by_length = sorted(tokens, key=len, reverse=True)

        def encode(text):
            ids = []
            while text:
                token = next((t for t in by_length if text.startswith(t)), None)
                if token is not None:
                    ids.append(tokens.index(token))
                text = text[len(token or " ") :]
            return ids

        return encode

    shared = [(i, draft.index(token)) for i, token in enumerate(target) if token in draft]
    encode_draft = spell(draft)
    return Translation(
        target_ids=np.array([i for i, _ in shared], np.int64),
        draft_ids=np.array([i for _, i in shared], np.int64),
        span=lambda id: tuple(encode_draft(target[id])) or (0,),
        decode=lambda ids: "".join(target[i] for i in ids).encode(),
        encode=spell(target),
        encode_draft=encode_draft,
        decode_draft=lambda ids: "".join(draft[i] for i in ids).encode(),
    )


def letters(count):
    """Returns the translation between one vocabulary of letters and itself."""
    return translation(list(LETTERS[:count]), list(LETTERS[:count]))
