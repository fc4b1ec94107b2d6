"""Text to ids and back: one path in, and a way out that fits a stream.

Going in, a text is cut at its special tokens, and each piece between them is tokenised alone. User-defined tokens
(<tool_call>, ...) are recognised in every text. Control tokens (<|im_end|>, ...) are recognised only where `special`
is set, and in what a chat template writes itself: inside a message they are ordinary characters, so that a user's
text cannot end its own turn or open another.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from outpace.chat_template import ChatTemplate
from outpace.errors import OutpaceError, Unsupported, UsageError
from outpace.native.gguf import GgufFile
from outpace.native.textfile import one_line
from outpace.native.weights import WeightFile
from outpace.special import SpecialTokens
from outpace.stops import StopScanner
from outpace.tokenizer import TokenModel, token_model_from_gguf
from outpace.tokenizer_json import token_model_from_folder
from outpace.vocabulary import Kind, Vocabulary

MAX_TEXT = 8 << 20
"""Characters of one text: more than any context holds, and what the pre-tokenizers' patterns can take."""

# One of these that occurs nowhere in a conversation marks the characters in it that must not start a control token.
_MARKS = [chr(point) for point in (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF8FF))]


class Text:
    """A tokenizer and chat template.

    eos_ids: those that end a generation; eos_id: the one that the model itself names, if any. prefix: those before
    every prompt.
    """

    def __init__(self, model: TokenModel, eos_ids: frozenset[int] = frozenset()) -> None:
        self._encode = model.encode
        self._piece_bytes = model.piece
        self.vocabulary: Vocabulary = model.vocabulary
        self.prefix = model.prefix
        self._suffix = model.suffix
        self.eos_ids = eos_ids | model.eos_ids
        self._template_source = model.template
        self._template: ChatTemplate | None = None
        self._names = model.names
        tokens = model.vocabulary.tokens
        plain = model.vocabulary.of_kind(Kind.USER_DEFINED)
        control = [*model.vocabulary.of_kind(Kind.CONTROL), *model.vocabulary.of_kind(Kind.UNKNOWN)]
        self._ids = {tokens[id]: id for id in (*plain, *control) if tokens[id]}
        self._control = SpecialTokens([tokens[id] for id in control])
        self._user_defined = SpecialTokens([tokens[id] for id in plain])
        self._special = SpecialTokens(self._ids)
        self._pieces: dict[int, bytes] = {}
        self.eos_id = self._ids.get(model.names.get("eos_token", ""))

    @staticmethod
    def from_weights(file: WeightFile) -> Text:
        """Returns the text side of an opened model. Raises BadModelFile, ModelNotFound or Unsupported."""
        try:
            if isinstance(file, GgufFile):
                return Text(token_model_from_gguf(file.metadata), file.config.eos_ids)
            return Text(token_model_from_folder(Path(file.path)), file.config.eos_ids)
        except OutpaceError as error:
            text = str(error)
            raise type(error)(text if str(file.path) in text else f"{file.path}: {text}") from None

    # in

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Returns the ids of a prompt, BOS first where the model wants it and the text does not have it already.

        special: control tokens written in the text are meant; otherwise they are ordinary characters.
        Raises UsageError for text that is not Unicode (half of a surrogate pair).
        """
        return self._with_prefix(self._cut(text, self._special if special else self._user_defined))

    def source(self, text: str) -> list[int]:
        """Returns the ids that an encoder reads, with what the tokenizer itself puts before and after a text."""
        return [*self.encode(text, special=False), *self._suffix]

    def render_chat(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> list[int]:
        """Returns the ids of a conversation, as the model's own template writes it.

        messages: `role` and `content` each, oldest first. Control tokens inside them are ordinary characters.
        Raises Unsupported without a template, BadModelFile when it fails, UsageError for a wrong message.
        """
        mark, template = self._mark(messages), self._chat_template()
        marked = [{key: self._marked(key, value, mark) for key, value in message.items()} for message in messages]
        text = template.render(marked, add_generation_prompt=add_generation_prompt)
        return self._with_prefix(self._cut(text, self._special, mark))

    def _marked(self, key: str, value: str, mark: str) -> str:
        """Returns a part of a message, its control tokens marked; plain roles stay whole: templates compare them."""
        plain = key == "role" and value.isidentifier() and value not in self._ids
        return value if plain else self._control.marked(value, mark)

    @property
    def has_chat_template(self) -> bool:
        return self._template_source is not None

    def _chat_template(self) -> ChatTemplate:
        if self._template_source is None:
            raise Unsupported("the model has no chat template: give it the prompt as it is, with --raw")
        if self._template is None:
            self._template = ChatTemplate(self._template_source, self._names)
        return self._template

    def _mark(self, messages: Sequence[Mapping[str, str]]) -> str:
        for i, message in enumerate(messages):
            if not isinstance(message, Mapping):
                raise UsageError(f"message {i} must have a role and a content, got {message!r:.60}")
            for key in ("role", "content"):
                if not isinstance(message.get(key), str):
                    raise UsageError(f"message {i} needs a text as its {key!r}, got {message.get(key)!r:.60}")
            for key, value in message.items():
                if not isinstance(value, str):
                    raise UsageError(f"message {i} has {key!r} = {value!r:.60}; only texts are supported")
        used = {char for message in messages for value in message.values() for char in set(value)}
        used.update(self._template_source or "")
        mark = next((mark for mark in _MARKS if mark not in used), None)
        if mark is None:
            raise UsageError("the messages use every private character of Unicode; none is left to mark them with")
        return mark

    def _with_prefix(self, ids: list[int]) -> list[int]:
        return ids if tuple(ids[: len(self.prefix)]) == self.prefix else [*self.prefix, *ids]

    def _cut(self, text: str, special: SpecialTokens, mark: str = "") -> list[int]:
        """Returns the ids of a text cut at its special tokens, none of which begins right after a mark."""
        _check_text(text)
        ids: list[int] = []
        done = 0
        for start, end in special.find(text, mark):
            ids += self._encode_piece(text[done:start], mark)
            ids.append(self._ids[text[start:end]])
            done = end
        return ids + self._encode_piece(text[done:], mark)

    def _encode_piece(self, piece: str, mark: str) -> list[int]:
        piece = piece.replace(mark, "") if mark else piece
        if not piece:
            return []
        try:
            return self._encode(piece)
        except BaseException as error:  # the library's panics are not Exceptions
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise UsageError(f"the text cannot be tokenised: {one_line(error)}") from None

    # out

    def piece(self, id: int) -> bytes:
        """Returns what a token adds to the text: nothing for control tokens, unused ones and padding rows."""
        piece = self._pieces.get(id)
        if piece is None:
            if id < 0:
                raise UsageError(f"a token id must be at least 0, got {id}")
            known = id < len(self.vocabulary)
            piece = self._piece_bytes(self.vocabulary.tokens[id], int(self.vocabulary.kinds[id])) if known else b""
            self._pieces[id] = piece
        return piece

    def named(self, id: int) -> bytes:
        """Returns what a token adds to the text, or the name of a control token; nothing for unused ones."""
        known = id < len(self.vocabulary) and self.vocabulary.kinds[id] != Kind.UNUSED
        return self.piece(id) or (self.vocabulary.tokens[id].encode(errors="replace") if known else b"")

    def describe(self, id: int) -> str:
        """Returns a token for a reader's eyes: its text, or the name of a control token, or its number."""
        text = self.piece(id).decode(errors="replace")
        if text or id >= len(self.vocabulary):
            return text or f"[{id}]"
        return self.vocabulary.tokens[id] or f"[{id}]"

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of the ids, control tokens left out, broken UTF-8 as U+FFFD."""
        return b"".join(map(self.piece, ids)).decode(errors="replace")

    def detokeniser(self) -> Detokeniser:
        """Returns an incremental `decode`."""
        return Detokeniser(self)

    def stream(self, stops: Sequence[str] = ()) -> TextStream:
        """Returns the text of a generation as it grows, which ends at the first stop string."""
        return TextStream(self, stops)


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise UsageError(f"the text has {len(text)} characters, at most {MAX_TEXT} can be tokenised")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text is not Unicode: half of a surrogate pair at character {error.start}") from None


class Detokeniser:
    """An incremental `Text.decode`: what it returned so far plus `flush()` is `decode` of everything."""

    def __init__(self, text: Text) -> None:
        self._piece = text.piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = self._decoder.decode

    def feed(self, ids: Iterable[int]) -> str:
        """Returns the text that became complete; bytes of an unfinished character wait."""
        return self._decoder.decode(b"".join(map(self._piece, ids)))

    def feed_one(self, id: int) -> str:
        """Returns `feed((id,))`, at less cost between two passes of a model."""
        return self._decode(self._piece(id))

    def flush(self) -> str:
        """Returns what waited, as U+FFFD: the text ended inside a character."""
        return self._decoder.decode(b"", True)


class TextStream:
    """The text of one generation, token by token: never half a character, never part of a stop string.

    has_stops: whether there is a stop string to look for.
    """

    def __init__(self, text: Text, stops: Sequence[str] = ()) -> None:
        self._detokeniser = text.detokeniser()
        self._scanner = StopScanner(stops)
        self.has_stops = bool(stops)
        self.stopped = False

    def feed(self, token: int, *, search: bool = True) -> tuple[str, bool]:
        """Returns (the text that may be shown now, whether this token completed a stop string).

        search: off for the first tokens of a text, which no stop string may end.
        """
        new = self._detokeniser.feed_one(token)
        if not (search and self.has_stops):
            return new, False
        text, self.stopped = self._scanner.feed(new)
        return text, self.stopped

    def finish(self) -> str:
        """Returns the text that was held back, now that no token follows.

        The mark for half a character completes no stop string: no token said it, and the text has ended already.
        """
        return "" if self.stopped else self._scanner.flush() + self._detokeniser.flush()
