"""The text side of an encoder-decoder: its answers begin with a word, and not with the space before it."""

from __future__ import annotations

from collections.abc import Iterable

from outpace.text import Detokeniser, Text


class AnswerText(Text):
    """A `Text` whose streams leave out a space at their beginning."""

    def detokeniser(self) -> Detokeniser:
        return _WithoutFirstSpace(self)


class _WithoutFirstSpace(Detokeniser):
    _begun = False

    def feed(self, ids: Iterable[int]) -> str:
        return self._trimmed(super().feed(ids))

    def feed_one(self, id: int) -> str:
        return self._trimmed(super().feed_one(id))

    def _trimmed(self, text: str) -> str:
        if self._begun or not text:
            return text
        self._begun = True
        return text.removeprefix(" ")
