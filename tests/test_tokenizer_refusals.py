"""Every refusal of a tokenizer, word for word, whether it lies in GGUF keys or in a tokenizer.json."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from safetensors_writer import described, tiny_folder
from tokenizer_writer import synthetic_model
from tokenizers import Tokenizer, models

from gguf_writer import Typed, tiny_model
from outpace.errors import BadModelFile, ModelNotFound, OutpaceError, Unsupported
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.text import Text

PRE = "gpt-2, smollm, qwen2, llama-bpe, llama3, llama-v3, tekken are"
KINDS = "byte-level BPE ('gpt2') and SentencePiece ('llama') are"
OURS = "byte-level BPE and SentencePiece are"

BYTE_LEVEL: list[tuple[dict[str, Any], type[OutpaceError], str]] = [
    ({"model": "bert"}, Unsupported, f"the tokenizer 'bert' is not supported; {KINDS}"),
    ({"model": None}, Unsupported, f"the tokenizer of no name is not supported; {KINDS}"),
    ({"model": [1, 2]}, Unsupported, f"the tokenizer an array of 2 is not supported; {KINDS}"),
    ({"pre": "falcon"}, Unsupported, f"the pre-tokenizer 'falcon' is not supported; {PRE}"),
    ({"pre": 5}, Unsupported, f"the pre-tokenizer 5 is not supported; {PRE}"),
    ({"pre": None}, Unsupported, f"the pre-tokenizer of no name is not supported; {PRE}"),
    (
        {"tokens": None},
        BadModelFile,
        "tokenizer.ggml.tokens is missing or empty, so its text cannot be tokenised",
    ),
    ({"merges": 4}, BadModelFile, "tokenizer.ggml.merges must be an array of strings, got 4"),
    ({"merges": [4]}, BadModelFile, "tokenizer.ggml.merges must be an array of strings, got an array of 1"),
    ({"merges": None}, BadModelFile, "tokenizer.ggml.merges must be an array of strings, got nothing"),
    ({"merges": ["ab"]}, BadModelFile, "tokenizer.ggml.merges has 'ab', which is not a pair"),
    (
        {"add_bos_token": True, "bos_token_id": 999},
        BadModelFile,
        "tokenizer.ggml.bos_token_id must be in [0, 320), as add_bos_token is set, got 999",
    ),
    (
        {"add_bos_token": True, "bos_token_id": None},
        BadModelFile,
        "tokenizer.ggml.bos_token_id must be in [0, 320), as add_bos_token is set, got nothing",
    ),
    ({"model": "llama"}, BadModelFile, "tokenizer.ggml.scores must be 320 numbers, one a token, got nothing"),
]


@pytest.mark.parametrize(("keys", "kind", "message"), BYTE_LEVEL, ids=lambda value: str(value)[:30])
def test_keys_of_byte_level_bpe(tmp_path: Path, keys: dict[str, Any], kind: type[OutpaceError], message: str) -> None:
    path = without_none(tmp_path / "m.gguf", tiny_model, {f"tokenizer.ggml.{key}": keys[key] for key in keys})
    file = open_gguf(path)
    with refused(kind, f"{path}: {message}"):
        Text.from_weights(file)


def without_none(path: Path, write: Callable[..., Path], keys: dict[str, Any]) -> Path:
    """Writes a model whose keys of value None say nothing: they stand there under another name."""
    write(path, **{key: 0 if value is None else value for key, value in keys.items()})
    data = path.read_bytes()
    for key in (key for key, value in keys.items() if value is None):
        data = data.replace(key.encode(), b"x" * len(key))
    path.write_bytes(data)
    return path


TOKENS = {
    "token_type of another length": (
        {"token_type": [1, 2]},
        "tokenizer.ggml.token_type must be 320 integers, one a token, got an array of 2",
    ),
    "token_type in floats": (
        {"token_type": Typed("arr", ("f32", [1.0] * 320))},
        "tokenizer.ggml.token_type must be 320 integers, one a token, got an array of 320",
    ),
    "token_type out of range": (
        {"token_type": [9] * 320},
        "tokenizer.ggml.token_type must be in [1, 6], got 9 to 9",
    ),
    "tokens of another type": (
        {"tokens": [1, 2]},
        "tokenizer.ggml.tokens must be an array of strings, got an array of 2",
    ),
}


@pytest.mark.parametrize(("keys", "message"), TOKENS.values(), ids=TOKENS)
def test_tokens_are_checked_when_the_file_is_opened(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", **{f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    with refused(BadModelFile, f"{path}: {message}"):
        open_gguf(path)


SENTENCEPIECE: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "scores too few": (
        lambda keys: {"scores": [1, 2]},
        "tokenizer.ggml.scores must be 1033 numbers, one a token, got an array of 2",
    ),
    "scores no array": (
        lambda keys: {"scores": "none"},
        "tokenizer.ggml.scores must be 1033 numbers, one a token, got 'none'",
    ),
    "scores not finite": (
        lambda keys: {"scores": Typed("arr", ("f32", [float("nan"), *keys["scores"][1:]]))},
        "tokenizer.ggml.scores holds a number that is not finite",
    ),
    "bos out of range": (
        lambda keys: {"bos_token_id": 10**6},
        "tokenizer.ggml.bos_token_id must be in [0, 1033), as add_bos_token is set, got 1000000",
    ),
    "a byte that is none": (
        lambda keys: {"tokens": [token.replace("<0x41>", "<0x4g>") for token in keys["tokens"]]},
        "the token '<0x4g>' is of the kind byte, but is not <0x00> to <0xFF>",
    ),
    "a byte that is missing": (
        lambda keys: {
            "token_type": [*keys["token_type"][:70], 5, *keys["token_type"][71:]],
            "unknown_token_id": 10**6,
        },
        "the vocabulary has neither a token for every byte nor an unknown token",
    ),
}


@pytest.mark.parametrize(("changes", "message"), SENTENCEPIECE.values(), ids=SENTENCEPIECE)
def test_keys_of_sentencepiece(
    tmp_path: Path, changes: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    metadata = open_gguf(synthetic_model(tmp_path / "m.gguf", "spm-plain")).metadata
    keys = {
        "tokens": metadata["tokenizer.ggml.tokens"].strings(),  # type: ignore[union-attr]
        **{key: metadata[f"tokenizer.ggml.{key}"].tolist() for key in ("scores", "token_type")},  # type: ignore[union-attr]
    }
    path = synthetic_model(tmp_path / "bad.gguf", "spm-plain", **changes(keys))
    with refused(BadModelFile, f"{path}: {message}"):
        Text.from_weights(open_gguf(path))


HOSTILE = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
FOLDERS: list[tuple[str, type[OutpaceError], str]] = [
    ("{}", Unsupported, f": the tokenizer 'BPE' without a decoder is not supported; {OURS}"),
    (
        '{"model": {"type": "Unigram"}}',
        Unsupported,
        f": the tokenizer 'Unigram' without a decoder is not supported; {OURS}",
    ),
    (
        described(decoder={"type": "WordPiece"}),
        Unsupported,
        f": the tokenizer 'BPE' with the decoder 'WordPiece' is not supported; {OURS}",
    ),
    (described(model__type="WordPiece"), Unsupported, f": the tokenizer 'WordPiece' is not supported; {OURS}"),
    (described(model__type=["BPE"]), Unsupported, f": the tokenizer ['BPE'] is not supported; {OURS}"),
    (
        described(pre_tokenizer=HOSTILE),
        Unsupported,
        ": the tokenizer's pattern '(a+)+$' is not one that we know",
    ),
    (
        "{",
        BadModelFile,
        "/tokenizer.json: not valid JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)",
    ),
    ("", BadModelFile, "/tokenizer.json: not valid JSON: Expecting value: line 1 column 1 (char 0)"),
    ("[]", BadModelFile, "/tokenizer.json: not a JSON object"),
    ("[" * 100_000, BadModelFile, "/tokenizer.json: its JSON is nested too deeply"),
    ('{"a": 1, "a": 2}', BadModelFile, "/tokenizer.json: not valid JSON: 'a' appears twice"),
    ('{"a": %s}' % ("1" * 5000), BadModelFile, "/tokenizer.json: holds a number of over 4300 digits"),
    ('{"a": "\\ud800"}', BadModelFile, "/tokenizer.json: holds half of a surrogate pair, which is no text"),
    (
        described(model__vocab={"a": 2**31}, model__merges=[], added_tokens=[]),
        BadModelFile,
        "/tokenizer.json: its 1 tokens must have ids in [0, 1028), got up to 2147483648",
    ),
    (
        described(model__vocab={}, model__merges=[], added_tokens=[], post_processor=None),
        BadModelFile,
        "/tokenizer.json: holds no tokens",
    ),
]


@pytest.mark.parametrize(("content", "kind", "message"), FOLDERS, ids=lambda value: str(value)[:30])
def test_a_tokenizer_json(tmp_path: Path, content: str, kind: type[OutpaceError], message: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer.json").write_text(content)
    with refused(kind, f"{folder}{message}"):
        Text.from_weights(open_safetensors(folder))


def test_what_the_library_refuses(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    content = described(model__merges=["zz yy"])
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        Tokenizer.from_str(content)
    line = f"{folder / 'tokenizer.json'}: the tokenizers library cannot use it: {theirs.value}"
    with refused(BadModelFile, line):
        Text.from_weights(open_safetensors(folder))


def test_merges_that_the_library_refuses(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", **{"tokenizer.ggml.merges": ["zz yy"]})
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        models.BPE(vocab={}, merges=[("zz", "yy")])
    with refused(BadModelFile, f"{path}: tokenizer.ggml.merges does not fit the tokens: {theirs.value}"):
        Text.from_weights(open_gguf(path))


CONFIGS = [
    ('{"eos_token": "\\ud800"}', "holds half of a surrogate pair, which is no text"),
    ('{"chat_template": "\\udfff"}', "holds half of a surrogate pair, which is no text"),
    ("[]", "not a JSON object"),
]


@pytest.mark.parametrize(("content", "message"), CONFIGS)
def test_a_tokenizer_config(tmp_path: Path, content: str, message: str) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer_config.json").write_text(content)
    with refused(BadModelFile, f"{folder / 'tokenizer_config.json'}: {message}"):
        Text.from_weights(open_safetensors(folder))


def test_templates_of_no_name_are_passed_over(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    named = [{"name": []}, {"name": {}}, 7, {"name": "default", "template": "{{ messages[0].content }}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    text = Text.from_weights(open_safetensors(folder))
    assert text.decode(text.render_chat([{"role": "user", "content": "the cat"}])) == "the cat"


def test_whole_pairs_are_a_text(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "\U0001f642"}))
    text = Text.from_weights(open_safetensors(folder))
    assert text.decode(text.render_chat([{"role": "user", "content": "a"}])) == "\U0001f642"


def test_a_tokenizer_json_that_is_no_file(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    file = open_safetensors(folder)
    path = folder / "tokenizer.json"
    path.unlink()
    with refused(ModelNotFound, f"{folder}: has no tokenizer.json, so its text cannot be tokenised"):
        Text.from_weights(file)
    path.symlink_to(path)
    with refused(BadModelFile, f"{path}: cannot be opened: {os.strerror(errno.ELOOP)}"):
        Text.from_weights(file)
    path.unlink()
    path.mkdir()
    with refused(BadModelFile, f"{path}: not a regular file"):
        Text.from_weights(file)


def test_a_model_without_a_chat_template(tmp_path: Path) -> None:
    text = Text.from_weights(open_gguf(tiny_model(tmp_path / "m.gguf", **{"tokenizer.chat_template": 1})))
    assert not text.has_chat_template
    with refused(Unsupported, "the model has no chat template: give it the prompt as it is, with --raw"):
        text.render_chat([{"role": "user", "content": "a"}])
