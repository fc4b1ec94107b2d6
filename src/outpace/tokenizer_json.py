"""A model's tokenizer as a tokenizer.json, read for the tokenizers library and written for transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from outpace import sentencepiece
from outpace.errors import BadModelFile, ModelNotFound, Unsupported
from outpace.native.metadata import quoted
from outpace.native.textfile import one_line, parse_json, read_json, read_text
from outpace.pre_tokenizers import SPELLED
from outpace.tokenizer import TokenModel, by_library, called, piece_bytes
from outpace.tokenizer_checks import check_parts, check_patterns
from outpace.vocabulary import Kind, Vocabulary, end_of_generation


def token_model_from_folder(folder: Path) -> TokenModel:
    """Returns the tokenizer of a folder with a tokenizer.json. Raises ModelNotFound, BadModelFile or Unsupported."""
    text = read_text(folder / "tokenizer.json")
    if text is None:
        raise ModelNotFound(f"{folder}: has no tokenizer.json, so its text cannot be tokenised")
    described = parse_json(text, folder / "tokenizer.json")
    kind = _section(described, "model").get("type", "BPE")
    steps = _decoder_steps(described)
    _check_kind(kind, steps, folder)
    check_patterns(described, folder)
    check_parts(described, folder / "tokenizer.json")
    try:
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # in a piece without control tokens, their texts are characters
        prefix, suffix = _around(tokenizer)
    except BaseException as error:  # the library's panics are not Exceptions
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise BadModelFile(
            f"{folder / 'tokenizer.json'}: the tokenizers library cannot use it: {one_line(error)}"
        ) from None
    vocabulary = _json_vocabulary(tokenizer, folder, byte_tokens="ByteLevel" not in steps)
    config = read_json(folder / "tokenizer_config.json") or {}
    names = {name: _content(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    known = {name: text for name, text in names.items() if text is not None}
    eos = tokenizer.token_to_id(known["eos_token"]) if "eos_token" in known else None
    return TokenModel(
        by_library(tokenizer),
        vocabulary,
        piece_bytes if "ByteLevel" in steps else sentencepiece.piece_bytes,
        prefix=prefix,
        suffix=suffix,
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
        if pattern in SPELLED:
            step["pattern"]["Regex"] = SPELLED[pattern]
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


def _check_kind(kind: object, steps: AbstractSet[str], folder: Path) -> None:
    """Raises Unsupported, naming what there is, unless model and decoder make a tokenizer that we know."""
    if (kind == "Unigram" and "Metaspace" in steps) or (kind == "BPE" and steps & {"ByteLevel", "ByteFallback"}):
        return
    decoder = ""
    if kind in ("BPE", "Unigram"):
        decoder = f" with the decoder {quoted(', '.join(sorted(steps)))}" if steps else " without a decoder"
    raise Unsupported(
        f"{folder}: the tokenizer {called(kind)}{decoder} is not supported; byte-level BPE and SentencePiece are"
    )


def _decoder_steps(described: Mapping[str, Any]) -> set[str]:
    """Returns the kinds of the decoder's steps: ByteLevel where every byte has its own character."""
    decoder = described.get("decoder")
    parts = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    return {str(part.get("type")) for part in parts if isinstance(part, dict)} if isinstance(parts, list) else set()


def _json_vocabulary(tokenizer: Tokenizer, folder: Path, byte_tokens: bool) -> Vocabulary:
    ids = tokenizer.get_vocab(with_added_tokens=True)
    rows = max(ids.values(), default=-1) + 1
    most = 4 * len(ids) + 1024
    if not ids:
        raise BadModelFile(f"{folder / 'tokenizer.json'}: holds no tokens")
    if rows > most:
        raise BadModelFile(
            f"{folder / 'tokenizer.json'}: its {len(ids)} tokens must have ids in [0, {most}), got up to {rows - 1}"
        )
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


def _around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns what the post-processor puts before every text, and after it, which has no place in a prompt."""
    marked = tokenizer.encode("a", add_special_tokens=True)
    ordinary = [i for i, special in enumerate(marked.special_tokens_mask) if not special]
    first, end = (ordinary[0], ordinary[-1] + 1) if ordinary else (0, len(marked.ids))
    return tuple(marked.ids[:first]), tuple(marked.ids[end:])


def _folder_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Returns the chat template's source: its own file, or the default one of tokenizer_config.json."""
    own = read_text(folder / "chat_template.jinja")
    if own is not None:
        return own
    found = config.get("chat_template")
    if isinstance(found, list):
        named = (item for item in found if isinstance(item, dict) and item.get("name") == "default")
        found = next((item.get("template") for item in named), None)
    return found if isinstance(found, str) else None


def _content(token: Any) -> str | None:
    """Returns the text of a token that is written as a string, or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _section(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = described.get(name)
    return section if isinstance(section, dict) else {}
