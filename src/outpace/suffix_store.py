"""Texts of earlier requests that `suffix` drafts from, in memory and as a file; only where a caller asks for one.

A file is one line of JSON (format, vocabulary, sizes, and a card that says what made it), then the lengths of the
texts as u32 and their tokens as u16 or u32, little-endian. A store belongs to a vocabulary, and with another it is
refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.contexts import Counts, new_counts
from outpace.errors import BadModelFile, UsageError, VocabularyMismatch
from outpace.native.rawfile import RawFile
from outpace.native.textfile import parse_json
from outpace.vocabulary import Vocabulary

DEPTH = 4
"""Longest context; with 3 an embedded model's answers are predicted 0.3 % worse, with 5 no better."""

MAX_TOKENS = 1_000_000
MAX_HEADER = 1 << 16
FORMAT = "outpace suffixes 1"

Tokens = NDArray[np.int32]


def fingerprint(vocabulary: Vocabulary) -> str:
    """Returns a hash of the tokens behind all ids."""
    return hashlib.sha256("\0".join(vocabulary.tokens).encode("utf-8", "surrogatepass")).hexdigest()


class SuffixStore:
    """The newest texts of at most `max_tokens` tokens, counted.

    vocabulary: the fingerprint of the model's. learns: whether finished requests are added. card: what made it. The
    counts of a text that was given up stay until as many tokens again as a quarter of the store were given up.
    """

    def __init__(
        self,
        vocabulary: str,
        vocab_size: int,
        *,
        max_tokens: int = MAX_TOKENS,
        learns: bool = True,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        if max_tokens < 1:
            raise UsageError(f"max_tokens of a store must be at least 1, got {max_tokens}")
        self.vocabulary = vocabulary
        self.vocab_size = vocab_size
        self.max_tokens = max_tokens
        self.learns = learns
        self.card = dict(card or {})
        self.counts: Counts = new_counts(DEPTH)
        self._texts: deque[Tokens] = deque()
        self._given_up = 0
        self.tokens = 0

    def add(self, text: Sequence[int] | Tokens, first: int = 0) -> None:
        """Counts text[first:], of which what comes before is only the context; the oldest texts make room.

        Raises UsageError for ids that the vocabulary does not have.
        """
        start = max(0, first - DEPTH)
        kept = np.asarray(text[start:], np.int32)[-self.max_tokens :]
        if len(kept) < 2:
            return
        if kept.min() < 0 or kept.max() >= self.vocab_size:
            raise UsageError(f"the token ids of a store must be in [0, {self.vocab_size})")
        self.counts.feed(kept.tolist(), min(first - start, len(kept)))
        self._texts.append(kept)
        self.tokens += len(kept)
        while self.tokens > self.max_tokens:
            oldest = len(self._texts.popleft())
            self.tokens -= oldest
            self._given_up += oldest
        if 4 * self._given_up > self.max_tokens:
            self._recount()

    def _recount(self) -> None:
        self._given_up = 0
        self.counts = new_counts(DEPTH)
        for text in self._texts:
            self.counts.feed(text.tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.counts.nbytes + 4 * self.tokens

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the store, all or nothing."""
        path = Path(path)
        header = {
            "format": FORMAT,
            "vocabulary": self.vocabulary,
            "vocab_size": self.vocab_size,
            "texts": len(self._texts),
            "tokens": self.tokens,
            "card": self.card,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            try:
                file.write(json.dumps(header, sort_keys=True).encode() + b"\n")
                file.write(np.array([len(text) for text in self._texts], "<u4").tobytes())
                for text in self._texts:
                    file.write(text.astype(_dtype(self.vocab_size)).tobytes())
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def open_store(
    path: str | os.PathLike[str], vocabulary: str, *, max_tokens: int = MAX_TOKENS, learns: bool = True
) -> SuffixStore:
    """Returns the store of a file, its newest texts of at most `max_tokens` tokens.

    Raises ModelNotFound, BadModelFile for anything but a whole store, VocabularyMismatch for another model's.
    """
    path = Path(path)
    with closing(RawFile(path)) as raw:
        head = raw.read(0, min(MAX_HEADER, raw.size)).tobytes()
        line = head.find(b"\n")
        described = _header(head[:line], path) if line > 0 else {}
        if described.get("format") != FORMAT:
            raise BadModelFile(f"{path}: not a store of suffixes, which begins with {FORMAT!r} in one line of JSON")
        texts, tokens, vocab_size = (_count(described, name, path) for name in ("texts", "tokens", "vocab_size"))
        if described.get("vocabulary") != vocabulary:
            raise VocabularyMismatch(f"{path}: was made for a model with another vocabulary")
        dtype = _dtype(vocab_size)
        start = line + 1
        if raw.size != start + 4 * texts + dtype.itemsize * tokens:
            raise BadModelFile(f"{path}: {texts} texts of {tokens} tokens do not make {raw.size} bytes")
        lengths = raw.read(start, 4 * texts).view("<u4").astype(np.int64)
        ids = raw.read(start + 4 * texts, dtype.itemsize * tokens).view(dtype)
    if lengths.sum() != tokens or (tokens and ids.max() >= min(vocab_size, 1 << 31)):
        raise BadModelFile(f"{path}: its lengths or token ids are out of range")
    card = described.get("card")
    store = SuffixStore(
        vocabulary, vocab_size, max_tokens=max_tokens, learns=learns, card=card if isinstance(card, dict) else {}
    )
    for text in np.split(ids, np.cumsum(lengths)[:-1]) if texts else ():
        store.add(text)
    return store


def _header(line: bytes, path: Path) -> Mapping[str, Any]:
    try:
        return parse_json(line.decode(), path)
    except UnicodeDecodeError:
        return {}


def _count(described: Mapping[str, Any], name: str, path: Path) -> int:
    value = described.get(name)
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise BadModelFile(f"{path}: {name!r} must be a count, got {value!r:.40}")
    return value


PACKAGED = Path(__file__).parent / "stores"
"""Answers of catalogue models, as files named after the beginning of their vocabulary's fingerprint."""


@cache
def _shared(shipped: Path, vocabulary: str) -> SuffixStore:
    return open_store(shipped, vocabulary, learns=False)


def _takes_files(folder: Path) -> bool:
    try:  # by making one: permissions are not all that a file system asks for
        with NamedTemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Stores:
    """What a model's requests may draft from: a store that came with the package, read when first asked for, and
    one that a caller asked for, which learns and is kept in `file`.
    """

    vocabulary: str = ""
    own: SuffixStore | None = None
    file: Path | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary, vocab_size: int, file: Path | None = None) -> Stores:
        """Returns the stores of a model; a file that is not there yet is an empty store.

        Raises as `open_store`, and UsageError for a file that could not be written once it has learnt.
        """
        name = fingerprint(vocabulary)
        if file is None:
            return cls(name)
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        if (file.exists() and not file.is_file()) or not _takes_files(folder):
            raise UsageError(f"a store cannot be written to {file}: name a file in a folder that can be written to")
        own = open_store(file, name) if file.exists() else SuffixStore(name, vocab_size)
        return cls(name, own, file)

    @property
    def packaged(self) -> SuffixStore | None:
        """The package's own, which never learns; one of each for all models of a process."""
        shipped = PACKAGED / f"{self.vocabulary[:16]}.suffixes"
        return _shared(shipped, self.vocabulary) if self.vocabulary and shipped.is_file() else None

    @property
    def all(self) -> tuple[SuffixStore, ...]:
        """Both, the less specific first."""
        return tuple(store for store in (self.packaged, self.own) if store is not None)

    def save(self) -> None:
        """Writes the store that was asked for, if one was."""
        if self.own is not None and self.file is not None:
            self.own.save(self.file)
