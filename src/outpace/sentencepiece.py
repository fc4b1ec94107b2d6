"""SentencePiece's byte-pair tokenizer: neighbours are joined, the best score first, and what is in no token is bytes.

Kudo and Richardson 2018 (arXiv 1808.06226). A space is written as U+2581. The order of joins is that of the scores of
the tokens that they make; of equal scores the leftmost is first.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile
from outpace.native.metadata import quoted
from outpace.vocabulary import Kind, Vocabulary

SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_WORDS = re.compile(f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+")
_MOST_CACHED, _LONGEST_CACHED = 1 << 16, 64


class SentencePiece:
    """A vocabulary with scores. `encode(text)` returns its ids, a space put first where the model was trained so."""

    def __init__(self, vocabulary: Vocabulary, scores: NDArray[np.float32], unknown: int | None, space: bool) -> None:
        tokens = vocabulary.tokens
        if not np.isfinite(scores).all():
            raise BadModelFile("tokenizer.ggml.scores holds a number that is not finite")
        # Control tokens and bytes are never made of characters.
        joinable = np.isin(vocabulary.kinds, (Kind.NORMAL, Kind.USER_DEFINED))
        self._ids = {tokens[id]: id for id in np.flatnonzero(joinable).tolist()}
        self._scores: list[float] = scores.tolist()
        self._bytes = _byte_ids(vocabulary, unknown)
        self._space = space
        # Where no token goes on past a space, the words between are joined each for itself, and may be remembered.
        crosses = re.compile(f"[^{SPACE}\0]{SPACE}").search("\0".join(tokens)) is not None
        self._cut: Callable[[str], Sequence[str]] = (lambda text: (text,)) if crosses else _WORDS.findall
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text."""
        text = (SPACE if self._space else "") + text.replace(" ", SPACE)
        ids: list[int] = []
        for word in self._cut(text):
            ids += self._word(word)
        return ids

    def _word(self, word: str) -> list[int]:
        ids = self._known.get(word)
        if ids is None:
            ids = self._join(word)
            if len(word) <= _LONGEST_CACHED:
                if len(self._known) >= _MOST_CACHED:
                    self._known.clear()
                self._known[word] = ids
        return ids

    def _join(self, word: str) -> list[int]:
        pieces: list[str] = list(word)  # "" once joined to a piece on the left
        last = len(pieces)
        before, after = list(range(-1, last - 1)), list(range(1, last + 1))
        queue: list[tuple[float, int, int, int]] = []  # -score, left, right, characters

        def consider(left: int, right: int) -> None:
            if left >= 0 and right < last:
                both = pieces[left] + pieces[right]
                id = self._ids.get(both)
                if id is not None:
                    heapq.heappush(queue, (-self._scores[id], left, right, len(both)))

        for i in range(1, last):
            consider(i - 1, i)
        while queue:
            _, left, right, size = heapq.heappop(queue)
            if not pieces[left] or not pieces[right] or len(pieces[left]) + len(pieces[right]) != size:
                continue  # one of the two has been joined to another since
            pieces[left] += pieces[right]
            pieces[right] = ""
            after[left] = after[right]
            if after[right] < last:
                before[after[right]] = left
            consider(before[left], left)
            consider(left, after[left])
        return [id for piece in pieces if piece for id in self._ids_of(piece)]

    def _ids_of(self, piece: str) -> list[int]:
        id = self._ids.get(piece)
        return [self._bytes[byte] for byte in piece.encode()] if id is None else [id]


def _byte_ids(vocabulary: Vocabulary, unknown: int | None) -> list[int]:
    """Returns the id of each byte; that of the unknown token where there is none."""
    ids: list[int | None] = [unknown] * 256
    for id in vocabulary.of_kind(Kind.BYTE):
        found = _BYTE.fullmatch(vocabulary.tokens[id])
        if found is None:
            name = quoted(vocabulary.tokens[id])
            raise BadModelFile(f"the token {name} is of the kind byte, but is not <0x00> to <0xFF>")
        ids[int(found[1], 16)] = id
    known = [id for id in ids if id is not None]
    if len(known) < 256:
        raise BadModelFile("the vocabulary has neither a token for every byte nor an unknown token")
    return known


def piece_bytes(token: str, kind: int) -> bytes:
    """Returns what a token adds to the text: nothing for control and unused tokens."""
    if kind == Kind.NORMAL:
        return token.replace(SPACE, " ").encode(errors="replace")
    if kind == Kind.BYTE:
        found = _BYTE.fullmatch(token)
        return bytes((int(found[1], 16),)) if found else b""
    return token.encode(errors="replace") if kind == Kind.USER_DEFINED else b""
