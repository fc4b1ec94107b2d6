"""A model's tokenizer, from GGUF keys: byte-level BPE or SentencePiece. `tokenizer_json` has the other kind of file.

Control tokens are not the tokenizer's business here: `Text` cuts them out of a text first, so that they are
recognised where they are meant and nowhere else.

A vocabulary may lack bytes (SmolLM2's has no token for 0x04, or for characters from U+40000 on); its model cannot
see them, and they are left out of the ids, as in every other tokenizer of such a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from outpace import sentencepiece
from outpace.errors import BadModelFile, Unsupported
from outpace.native.metadata import StringArray, Value, brief, gguf_tokens, quoted
from outpace.native.textfile import one_line
from outpace.pre_tokenizers import PRE_TOKENIZERS
from outpace.sentencepiece import SentencePiece
from outpace.vocabulary import Kind, Vocabulary


def _byte_alphabet() -> dict[int, int]:
    """Returns the code point that byte-level BPE writes for a byte -> the byte (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: b for b in plain} | {256 + i: b for i, b in enumerate(others)}


BYTE_OF = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class TokenModel:
    """What turns text into ids.

    encode: a text without control tokens into ids. piece: a token and its kind into what it adds to a text.
    prefix: the ids that start every prompt (BOS, or nothing). template: the chat template's source.
    names: bos_token, eos_token, ... as templates know them. eos_ids: what the tokenizer itself says ends a text.
    suffix: the ids that end what an encoder reads.
    library: what `encode` asks, where that is the tokenizers library and comes from a GGUF file.
    """

    encode: Callable[[str], list[int]]
    vocabulary: Vocabulary
    piece: Callable[[str, int], bytes]
    prefix: tuple[int, ...] = ()
    template: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    eos_ids: frozenset[int] = frozenset()
    suffix: tuple[int, ...] = ()
    library: Tokenizer | None = None


def by_library(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Returns what gives the ids of a text, by a tokenizer of the library."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def token_model_from_gguf(metadata: Mapping[str, Value]) -> TokenModel:
    """Returns the tokenizer that the keys of a GGUF file describe. Raises BadModelFile or Unsupported."""
    model = metadata.get("tokenizer.ggml.model")
    known = {"gpt2": _byte_level_model, "llama": _sentencepiece_model}
    if not isinstance(model, str) or model not in known:
        raise Unsupported(
            f"the tokenizer {called(model)} is not supported; byte-level BPE ('gpt2') and SentencePiece ('llama') are"
        )
    return known[model](metadata)


def _byte_level_model(metadata: Mapping[str, Value]) -> TokenModel:
    name = metadata.get("tokenizer.ggml.pre")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise Unsupported(f"the pre-tokenizer {called(name)} is not supported; {', '.join(PRE_TOKENIZERS)} are")
    pre, vocabulary = PRE_TOKENIZERS[name], _gguf_vocabulary(metadata)
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, StringArray):
        raise BadModelFile(f"tokenizer.ggml.merges must be an array of strings, got {brief(merges)}")
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary)), strict=True))
    tokenizer = Tokenizer(_bpe(ids, merges, pre.whole_words))
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    lacking = "".join(char for point in BYTE_OF if (char := chr(point)) not in ids)
    if lacking:  # what a missing byte stood between must not merge
        steps.append(pre_tokenizers.Split(Regex("[" + re.escape(lacking) + "]"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return _named(
        metadata, TokenModel(by_library(tokenizer), vocabulary, piece_bytes, library=tokenizer), {}, pre.add_bos
    )


def _sentencepiece_model(metadata: Mapping[str, Value]) -> TokenModel:
    vocabulary, scores = _gguf_vocabulary(metadata), metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or scores.shape != (len(vocabulary),) or scores.dtype.kind != "f":
        raise BadModelFile(
            f"tokenizer.ggml.scores must be {len(vocabulary)} numbers, one a token, got {brief(scores)}"
        )
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    known = type(unknown) is int and 0 <= unknown < len(vocabulary)
    space = metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
    pieces = SentencePiece(vocabulary, scores.astype(np.float32), unknown if known else None, space)  # type: ignore[arg-type]
    usual = {"bos": 1, "eos": 2, "unk": 0}
    return _named(metadata, TokenModel(pieces.encode, vocabulary, sentencepiece.piece_bytes), usual, add_bos=True)


def _named(metadata: Mapping[str, Value], model: TokenModel, usual: Mapping[str, int], add_bos: bool) -> TokenModel:
    """Returns the model with its special tokens and template. usual, add_bos: where no key says so."""
    found: dict[str, int] = {}
    for name in ("bos", "eos", "unk", "pad"):
        key = {"unk": "unknown", "pad": "padding"}.get(name, name)
        value = metadata.get(f"tokenizer.ggml.{key}_token_id", usual.get(name))
        if type(value) is int and 0 <= value < len(model.vocabulary):
            found[name] = value
    wants_bos = metadata.get("tokenizer.ggml.add_bos_token", add_bos) is not False
    if wants_bos and "bos" not in found:
        raise BadModelFile(
            f"tokenizer.ggml.bos_token_id must be in [0, {len(model.vocabulary)}), as add_bos_token is set, "
            f"got {brief(metadata.get('tokenizer.ggml.bos_token_id'))}"
        )
    template = metadata.get("tokenizer.chat_template")
    return replace(
        model,
        prefix=(found["bos"],) if wants_bos else (),
        template=template if isinstance(template, str) else None,
        names={f"{name}_token": model.vocabulary.tokens[id] for name, id in found.items()},
    )


def vocabulary_from_gguf(metadata: Mapping[str, Value]) -> Vocabulary:
    """Returns the tokens alone, without building a tokenizer: what a comparison of models needs."""
    return _gguf_vocabulary(metadata)


def _gguf_vocabulary(metadata: Mapping[str, Value]) -> Vocabulary:
    found = gguf_tokens(metadata)
    if found is None or not len(found[0]):
        raise BadModelFile("tokenizer.ggml.tokens is missing or empty, so its text cannot be tokenised")
    tokens, kinds = found
    return Vocabulary(tokens.strings(), kinds)


def _bpe(ids: dict[str, int], merges: StringArray, whole_words: bool) -> models.BPE:
    pairs = [tuple(merge.split(" ", 1)) for merge in merges.strings()]
    merges.forget()
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise BadModelFile(f"tokenizer.ggml.merges has {quoted(wrong[0])}, which is not a pair")
    try:
        return models.BPE(vocab=ids, merges=pairs, ignore_merges=whole_words)  # type: ignore[arg-type]
    except Exception as error:  # the library has no class of its own for it
        raise BadModelFile(f"tokenizer.ggml.merges does not fit the tokens: {one_line(error)}") from None


def called(value: object) -> str:
    """Returns what a file calls its tokenizer, as a message may show it."""
    return "of no name" if value is None else brief(value)


def piece_bytes(token: str, kind: int) -> bytes:
    """Returns what a token adds to the text: nothing for control and unused tokens."""
    if kind == Kind.NORMAL:
        return b"".join(
            bytes((BYTE_OF[point],)) if (point := ord(char)) in BYTE_OF else char.encode(errors="replace")
            for char in token
        )
    return token.encode(errors="replace") if kind == Kind.USER_DEFINED else b""
