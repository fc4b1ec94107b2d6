"""Where a text's special tokens are, in time that does not grow with how many of them a vocabulary has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from outpace.errors import BadModelFile

MAX_LENGTH = 256
"""Characters of one special token."""


class SpecialTokens:
    """A set of token texts to look for."""

    def __init__(self, tokens: Collection[str]) -> None:
        self._tokens = frozenset(token for token in tokens if token)
        self._lengths = sorted({len(token) for token in self._tokens}, reverse=True)
        if self._lengths and self._lengths[0] > MAX_LENGTH:
            raise BadModelFile(f"a special token has {self._lengths[0]} characters, at most {MAX_LENGTH} make sense")
        self._longest = self._lengths[0] if self._lengths else 0
        firsts = "".join(sorted({token[0] for token in self._tokens}))
        self._first = re.compile("[" + re.escape(firsts) + "]") if firsts else None
        self._beginnings = {token[:n] for token in self._tokens for n in range(1, len(token))}
        self._ends = {token[n:] for token in self._tokens for n in range(1, len(token))}

    def find(self, text: str, mark: str = "") -> Iterator[tuple[int, int]]:
        """Yields (start, end) of each token from left to right, the longest at a place; none starts after a mark."""
        done = 0
        for found in self._first.finditer(text) if self._first else ():
            at = found.start()
            if at < done or (mark and text[at - 1 : at] == mark):
                continue
            length = self._length_at(text, at)
            if length:
                done = at + length
                yield at, done

    def marked(self, text: str, mark: str) -> str:
        """Returns the text with a mark before each character that starts a token, or would if the text went on.

        One at the front too if the text could finish a token that something before it began.
        """
        out: list[str] = []
        done = 0
        if any(text[:n] in self._ends for n in range(1, min(self._longest, len(text) + 1))):
            out.append(mark)
        for found in self._first.finditer(text) if self._first else ():
            at = found.start()
            if self._length_at(text, at) or (len(text) - at < self._longest and text[at:] in self._beginnings):
                out += [text[done:at], mark]
                done = at
        out.append(text[done:])
        return "".join(out)

    def _length_at(self, text: str, at: int) -> int:
        """Returns the length of the longest token at a place, or 0."""
        return next((n for n in self._lengths if text[at : at + n] in self._tokens), 0)
