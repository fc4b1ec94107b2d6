"""SentencePiece against a slow statement of its rule; synthetic tokenizers against llama.cpp, recorded and live."""

from __future__ import annotations

import importlib.util
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hard_text import hard_lines
from record_tokens import RECORDED, comparable, digest, llama_cpp_ids
from safetensors_writer import tiny_folder
from tokenizer_writer import SYNTHETIC, synthetic_model

from gguf_writer import Tiny
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.sentencepiece import SPACE, SentencePiece
from outpace.text import Text
from outpace.vocabulary import Kind, Vocabulary

each_tokenizer = pytest.mark.parametrize("name", SYNTHETIC)


def slowly(vocabulary: Vocabulary, scores: np.ndarray, text: str) -> list[int]:
    """Returns the ids by the rule as it reads: again and again the best join, the leftmost of equals."""
    ids, pieces = {token: i for i, token in enumerate(vocabulary.tokens)}, list(text.replace(" ", SPACE))
    ids = {token: i for token, i in ids.items() if vocabulary.kinds[i] in (Kind.NORMAL, Kind.USER_DEFINED)}
    bytes_of = [vocabulary.tokens.index(f"<0x{byte:02X}>") for byte in range(256)]
    while True:
        pairs = enumerate(a + b for a, b in pairwise(pieces))
        joins = [(-scores[ids[both]], i) for i, both in pairs if both in ids]
        if not joins:
            break
        _, at = min(joins)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    found = [[ids[piece]] if piece in ids else [bytes_of[byte] for byte in piece.encode()] for piece in pieces]
    return [id for part in found for id in part]


@pytest.mark.parametrize("name", ["spm-plain", "spm-crossing"])
def test_ids_are_those_of_the_rule(tmp_path: Path, name: str) -> None:
    metadata = open_gguf(synthetic_model(tmp_path / "m.gguf", name)).metadata
    tokens, kinds = metadata["tokenizer.ggml.tokens"].strings(), metadata["tokenizer.ggml.token_type"]
    vocabulary, scores = Vocabulary(tokens, kinds.astype(np.int8)), metadata["tokenizer.ggml.scores"]
    pieces = SentencePiece(vocabulary, scores, unknown=0, space=False)
    for line in hard_lines(400, seed=5):
        assert pieces.encode(line) == slowly(vocabulary, scores, line), repr(line)


def test_of_equal_scores_the_leftmost_joins_first() -> None:
    tokens = ["<unk>", "a", "b", "ab", "ba"]
    vocabulary = Vocabulary(tokens, np.array([Kind.UNKNOWN, 1, 1, 1, 1], np.int8))
    pieces = SentencePiece(vocabulary, np.array([0, 0, 0, -1, -1], np.float32), unknown=0, space=False)
    assert pieces.encode("abab") == [3, 3]
    assert pieces.encode("baba") == [4, 4]
    assert pieces.encode("bé") == [2, 0, 0]  # no byte tokens: the unknown one for each


@each_tokenizer
def test_ids_are_the_recorded_ones(tmp_path: Path, name: str) -> None:
    text = Text.from_weights(open_gguf(synthetic_model(tmp_path / "m.gguf", name)))
    plain = [text.encode(line, special=False)[len(text.prefix) :] for line in comparable(hard_lines(), name)]
    assert digest(plain) == json.loads(RECORDED.read_text())[name]["plain"]


@each_tokenizer
def test_ids_are_llama_cpps(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed (extra 'peers')")
    path = synthetic_model(tmp_path / "m.gguf", name)
    text, lines = Text.from_weights(open_gguf(path)), comparable(hard_lines(600, seed=7), name)
    for line, ids in zip(lines, llama_cpp_ids(path, lines, special=False), strict=True):
        assert text.encode(line, special=False)[len(text.prefix) :] == ids, repr(line)


@each_tokenizer
def test_text_survives(tmp_path: Path, name: str) -> None:
    text = Text.from_weights(open_gguf(synthetic_model(tmp_path / "m.gguf", name)))
    for line in hard_lines(400, seed=3):
        if any(token in line for token in ("<s>", "</s>", "<tool_call>", "  ")):
            continue  # after a special token another space comes first
        decoded = text.decode(text.encode(line, special=False))
        assert decoded == (f" {line}" if line and name in ("spm-prefix", "spm-crossing") else line)


def test_control_tokens_and_bytes_are_not_made_of_characters() -> None:
    tokens = ["<unk>", "<s>", "<", "s", ">", "<s", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = Vocabulary(tokens, np.array([Kind.UNKNOWN, Kind.CONTROL, 1, 1, 1, 1] + [Kind.BYTE] * 256, np.int8))
    pieces = SentencePiece(vocabulary, np.zeros(len(tokens), np.float32), unknown=0, space=False)
    assert pieces.encode("<s>") == [5, 4]
    assert 1 not in pieces.encode("<0x41><s><unk>")


def test_a_space_comes_first_where_the_model_was_trained_so(tmp_path: Path) -> None:
    with_space, without = (
        Text.from_weights(open_gguf(synthetic_model(tmp_path / f"{name}.gguf", name)))
        for name in ("spm-prefix", "spm-plain")
    )
    assert with_space.prefix == without.prefix == (1,)
    assert with_space.encode("the", special=False) == without.encode(" the", special=False)
    assert with_space.encode("<s>the", special=True) == without.encode(" the", special=False)


def test_a_tokenizer_json_of_the_vocabulary_gives_the_same_ids(tmp_path: Path) -> None:
    file = open_gguf(synthetic_model(tmp_path / "m.gguf", "spm-plain"))
    tokens, kinds = file.metadata["tokenizer.ggml.tokens"].strings(), file.metadata["tokenizer.ggml.token_type"]
    ids = {token: i for i, token in enumerate(tokens)}
    splits = [(token[:at], token[at:]) for token in tokens[261:] for at in range(1, len(token))]
    added = [
        {"id": i, "content": tokens[i], "special": bool(kinds[i] != Kind.USER_DEFINED), "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False} for i in range(5)
    ]  # fmt: skip
    space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    described = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": space,
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            space | {"pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": ids,
            "merges": [[a, b] for a, b in splits if a in ids and b in ids],
        },
    }  # fmt: skip
    folder = tiny_folder(tmp_path / "folder", Tiny(vocab_size=len(tokens)))
    (folder / "tokenizer.json").write_text(json.dumps(described))
    theirs, ours = Text.from_weights(open_safetensors(folder)), Text.from_weights(file)
    for line in hard_lines(600, seed=11):
        found = theirs.encode(line, special=False)
        assert found == ours.encode(line, special=False)[1:], repr(line)
        assert theirs.decode(found) == ours.decode(found)
