"""A model's tokenizer, from GGUF keys or from a tokenizer.json: byte-level BPE or SentencePiece.

Control tokens are not the tokenizer's business here: `Text` cuts them out of a text first, so that they are
recognised where they are meant and nowhere else.

A vocabulary may lack bytes (SmolLM2's has no token for 0x04, or for characters from U+40000 on); its model cannot
see them, and they are left out of the ids, as in every other tokenizer of such a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from outpace import sentencepiece
from outpace.errors import BadModelFile, ModelNotFound, Unsupported
from outpace.native.metadata import StringArray, Value, quoted
from outpace.native.textfile import one_line, parse_json, read_json, read_text
from outpace.sentencepiece import SentencePiece
from outpace.vocabulary import Kind, Vocabulary, end_of_generation

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_QWEN2_JSON = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _LLAMA3_JSON = (pattern.replace(r"|\p{N}|", r"|\p{N}{1,3}|") for pattern in (_QWEN2, _QWEN2_JSON))
_SPELLED = {_QWEN2: _QWEN2_JSON, _LLAMA3: _LLAMA3_JSON}
"""Patterns as their publishers spell them in tokenizer.json."""

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is cut into words before byte-level BPE: by patterns, each applied to the last one's pieces.

    whole_words: a word that is a token is that token, whatever the merges say. add_bos: unless the file says not to.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_LLAMA3_WORDS = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "qwen2": PreTokenizer((_QWEN2,)),
    "llama-bpe": _LLAMA3_WORDS,
    "llama3": _LLAMA3_WORDS,
    "llama-v3": _LLAMA3_WORDS,
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
}
"""By GGUF's name."""

_JSON_PATTERNS = frozenset(
    (
        _GPT2,
        _TEKKEN,
        r"\p{N}",
        r"\p{N}{1,3}",
        r"[0-9]",
        r"[0-9][0-9][0-9]",
        *(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
            + digits
            + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            for digits in ("", "{1,3}")
        ),
    )
)
"""Patterns that a tokenizer.json may use: a hostile one could take the time of many texts for one."""


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


def _library(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Returns the ids of a text by a tokenizer of the library."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def token_model_from_gguf(metadata: Mapping[str, Value]) -> TokenModel:
    """Returns the tokenizer that the keys of a GGUF file describe. Raises BadModelFile or Unsupported."""
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level_model(metadata)
    if model == "llama":
        return _sentencepiece_model(metadata)
    raise Unsupported(
        f"the tokenizer {_brief(model)} is not supported; byte-level BPE ('gpt2') and SentencePiece ('llama') are"
    )


def _byte_level_model(metadata: Mapping[str, Value]) -> TokenModel:
    name = metadata.get("tokenizer.ggml.pre")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise Unsupported(f"the pre-tokenizer {_brief(name)} is not supported; {', '.join(PRE_TOKENIZERS)} are")
    pre, vocabulary = PRE_TOKENIZERS[name], _gguf_vocabulary(metadata)
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, StringArray):
        raise BadModelFile("tokenizer.ggml.merges is missing, or not an array of strings")
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary)), strict=True))
    tokenizer = Tokenizer(_bpe(ids, merges, pre.whole_words))
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    lacking = "".join(char for point in BYTE_OF if (char := chr(point)) not in ids)
    if lacking:  # what a missing byte stood between must not merge
        steps.append(pre_tokenizers.Split(Regex("[" + re.escape(lacking) + "]"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return _named(
        metadata, TokenModel(_library(tokenizer), vocabulary, piece_bytes, library=tokenizer), {}, pre.add_bos
    )


def _sentencepiece_model(metadata: Mapping[str, Value]) -> TokenModel:
    vocabulary, scores = _gguf_vocabulary(metadata), metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or scores.shape != (len(vocabulary),) or scores.dtype.kind != "f":
        raise BadModelFile(f"tokenizer.ggml.scores must be {len(vocabulary)} numbers, one a token")
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
        raise BadModelFile("tokenizer.ggml.add_bos_token is set, but no valid bos_token_id is")
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
    tokens, kinds = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if not isinstance(tokens, StringArray) or not len(tokens):
        raise BadModelFile("tokenizer.ggml.tokens is missing, or not an array of strings")
    if kinds is None:
        kinds = np.full(len(tokens), Kind.NORMAL, np.int8)
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),) or kinds.dtype.kind not in "iu":
        raise BadModelFile(f"tokenizer.ggml.token_type must be {len(tokens)} integers, one a token")
    if kinds.min() < Kind.NORMAL or kinds.max() > Kind.BYTE:
        raise BadModelFile(f"tokenizer.ggml.token_type must be in [1, 6], got {kinds.min()} to {kinds.max()}")
    return Vocabulary(tokens.strings(), kinds.astype(np.int8))


def _bpe(ids: dict[str, int], merges: StringArray, whole_words: bool) -> models.BPE:
    pairs = [tuple(merge.split(" ", 1)) for merge in merges.strings()]
    merges.forget()
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise BadModelFile(f"tokenizer.ggml.merges has {wrong[0][:40]!r}, which is not a pair")
    try:
        return models.BPE(vocab=ids, merges=pairs, ignore_merges=whole_words)  # type: ignore[arg-type]
    except Exception as error:  # the library has no class of its own for it
        raise BadModelFile(f"tokenizer.ggml.merges does not fit the tokens: {one_line(error)}") from None


def token_model_from_folder(folder: Path) -> TokenModel:
    """Returns the tokenizer of a folder with a tokenizer.json. Raises ModelNotFound, BadModelFile or Unsupported."""
    text = read_text(folder / "tokenizer.json")
    if text is None:
        raise ModelNotFound(f"{folder}: has no tokenizer.json, so its text cannot be tokenised")
    described = parse_json(text, folder / "tokenizer.json")
    kind = _section(described, "model").get("type", "BPE")
    steps = _decoder_steps(described)
    unigram = kind == "Unigram" and "Metaspace" in steps
    if not unigram and (kind != "BPE" or not steps & {"ByteLevel", "ByteFallback"}):
        raise Unsupported(
            f"{folder}: the tokenizer {_brief(kind)} is not supported; byte-level BPE and SentencePiece are"
        )
    _check_patterns(described, folder)
    try:
        tokenizer = Tokenizer.from_str(text)
    except BaseException as error:  # the library's panics are not Exceptions
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise BadModelFile(f"{folder / 'tokenizer.json'}: {one_line(error)}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # in a piece without control tokens, their texts are ordinary characters
    vocabulary = _json_vocabulary(tokenizer, folder, byte_tokens="ByteLevel" not in steps)
    config = read_json(folder / "tokenizer_config.json") or {}
    names = {name: _content(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    known = {name: text for name, text in names.items() if text is not None}
    eos = tokenizer.token_to_id(known["eos_token"]) if "eos_token" in known else None
    return TokenModel(
        _library(tokenizer),
        vocabulary,
        piece_bytes if "ByteLevel" in steps else sentencepiece.piece_bytes,
        prefix=_prefix(tokenizer),
        suffix=_suffix(tokenizer),
        template=_folder_template(folder, config),
        names=known,
        eos_ids=end_of_generation(vocabulary.tokens, vocabulary.kinds) | ({eos} if eos is not None else set()),
    )


def json_of(model: TokenModel) -> dict[str, Any]:
    """Returns the tokenizer.json of a GGUF file's tokenizer, for `transformers` and for `token_model_from_folder`.

    Bytes that the vocabulary lacks are left to the reader, which drops them, too. SentencePiece raises Unsupported.
    """
    if model.library is None:
        raise Unsupported("a SentencePiece vocabulary has no tokenizer.json here; byte-level BPE has")
    described: dict[str, Any] = json.loads(model.library.to_str())
    steps = described["pre_tokenizer"]["pretokenizers"]
    described["pre_tokenizer"]["pretokenizers"] = [step for step in steps if step.get("behavior") != "Removed"]
    for step in steps:
        pattern = step.get("pattern", {}).get("Regex")
        if pattern in _SPELLED:
            step["pattern"]["Regex"] = _SPELLED[pattern]
    described["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    vocabulary = model.vocabulary
    entries = described["model"]["vocab"].items()
    # Padding of the embedding is no token: another model of the family is padded otherwise.
    described["model"]["vocab"] = {token: id for token, id in entries if vocabulary.kinds[id] != Kind.UNUSED}
    added = [(id, False) for id in vocabulary.of_kind(Kind.USER_DEFINED)]
    added += [(id, True) for kind in (Kind.CONTROL, Kind.UNKNOWN) for id in vocabulary.of_kind(kind)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    described["added_tokens"] = [
        {"id": id, "content": vocabulary.tokens[id], "special": special} | flags for id, special in sorted(added)
    ]
    if model.prefix:
        described["post_processor"] = _prefixing(model.prefix, vocabulary)
    return described


def _prefixing(prefix: Sequence[int], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the post-processor that puts the ids before every text."""
    names = [vocabulary.tokens[id] for id in prefix]
    before = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in zip(names, prefix, strict=True)}
    sequences = {kind: {"Sequence": {"id": kind, "type_id": 0}} for kind in "AB"}
    return {
        "type": "TemplateProcessing",
        "single": [*before, sequences["A"]],
        "pair": [*before, sequences["A"], sequences["B"]],
        "special_tokens": special,
    }


def _decoder_steps(described: Mapping[str, Any]) -> set[str]:
    """Returns the kinds of the decoder's steps: ByteLevel where every byte has its own character."""
    decoder = described.get("decoder")
    parts = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    return {str(part.get("type")) for part in parts if isinstance(part, dict)} if isinstance(parts, list) else set()


def _check_patterns(described: Mapping[str, Any], folder: Path) -> None:
    rest: list[Any] = [described.get("pre_tokenizer"), described.get("normalizer")]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            pattern = node.get("Regex")
            if pattern is not None and pattern not in _JSON_PATTERNS:
                raise Unsupported(f"{folder}: the tokenizer's pattern {quoted(str(pattern))} is not one that we know")
            rest += node.values()
        elif isinstance(node, list):
            rest += node


def _json_vocabulary(tokenizer: Tokenizer, folder: Path, byte_tokens: bool) -> Vocabulary:
    ids = tokenizer.get_vocab(with_added_tokens=True)
    rows = max(ids.values(), default=-1) + 1
    if not ids or rows > 4 * len(ids) + 1024:
        raise BadModelFile(f"{folder / 'tokenizer.json'}: {len(ids)} tokens with ids up to {rows - 1}")
    tokens, kinds = [""] * rows, np.full(rows, Kind.UNUSED, np.int8)
    for token, id in ids.items():
        tokens[id] = token
    kinds[list(ids.values())] = Kind.NORMAL
    if byte_tokens:
        kinds[[ids[token] for byte in range(256) if (token := f"<0x{byte:02X}>") in ids]] = Kind.BYTE
    for id, added in tokenizer.get_added_tokens_decoder().items():
        tokens[id] = added.content
        kinds[id] = Kind.CONTROL if added.special else Kind.USER_DEFINED
    return Vocabulary(tokens, kinds)


def _prefix(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns what the post-processor puts before every text; what it appends has no place in a prompt."""
    marked = tokenizer.encode("a", add_special_tokens=True)
    count = next((i for i, special in enumerate(marked.special_tokens_mask) if not special), 0)
    return tuple(marked.ids[:count])


def _suffix(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns what the post-processor puts after every text."""
    marked = tokenizer.encode("a", add_special_tokens=True)
    count = next((i for i, special in enumerate(reversed(marked.special_tokens_mask)) if not special), 0)
    return tuple(marked.ids[len(marked.ids) - count :])


def _folder_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Returns the chat template's source: its own file, or the default one of tokenizer_config.json."""
    own = read_text(folder / "chat_template.jinja")
    if own is not None:
        return own
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _content(token: Any) -> str | None:
    """Returns the text of a token that is written as a string, or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _section(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = described.get(name)
    return section if isinstance(section, dict) else {}


def _brief(value: object) -> str:
    return "of no name" if value is None else repr(value)[:60]


def piece_bytes(token: str, kind: int) -> bytes:
    """Returns what a token adds to the text: nothing for control and unused tokens."""
    if kind == Kind.NORMAL:
        return b"".join(
            bytes((BYTE_OF[point],)) if (point := ord(char)) in BYTE_OF else char.encode(errors="replace")
            for char in token
        )
    return token.encode(errors="replace") if kind == Kind.USER_DEFINED else b""
