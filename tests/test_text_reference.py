"""Ids equal to llama.cpp's on the real tokenizers: recorded, and compared live where llama-cpp-python is there."""

from __future__ import annotations

import importlib.util
import json
import unicodedata
from pathlib import Path

import pytest
from hard_text import READABLE, hard_lines
from record_tokens import RECORDED, digest, llama_cpp_ids, special_lines

from outpace.native.gguf import open_gguf
from outpace.text import Text
from outpace.vocabulary import Kind


def check_recorded(path: Path, name: str) -> None:
    text, recorded, lines = Text.from_weights(open_gguf(path)), json.loads(RECORDED.read_text())[name], hard_lines()
    for line, ids in zip(READABLE, recorded["readable"], strict=True):
        assert text.encode(line, special=False) == ids, repr(line)
    assert digest([text.encode(line, special=False) for line in lines]) == recorded["plain"]
    assert digest([text.encode(line, special=True) for line in special_lines(lines)]) == recorded["special"]


def check_live(path: Path, without: str = "") -> None:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed (extra 'peers')")
    text = Text.from_weights(open_gguf(path))
    lines = [line for line in hard_lines(600, seed=7) if not without or without not in line]
    for line, ids in zip(lines, llama_cpp_ids(path, lines, special=False), strict=True):
        assert text.encode(line, special=False)[len(text.prefix) :] == ids, repr(line)


@pytest.mark.embedded
def test_embedded_ids_are_the_recorded_ones(embedded_model: Path) -> None:
    check_recorded(embedded_model, "smollm2-135m")


@pytest.mark.embedded
def test_embedded_ids_are_llama_cpps(embedded_model: Path) -> None:
    check_live(embedded_model)


@pytest.mark.real
def test_real_ids_are_the_recorded_ones(real_draft: Path) -> None:
    check_recorded(real_draft, "qwen2.5-coder-0.5b")


@pytest.mark.real
def test_real_ids_are_llama_cpps(real_draft: Path) -> None:
    check_live(real_draft)


@pytest.mark.real
def test_ids_of_a_real_sentencepiece_vocabulary_are_llama_cpps(gemma3: Path) -> None:
    check_live(gemma3, without="</s>")  # which llama.cpp takes for a control token, the file for a tag


@pytest.mark.real
@pytest.mark.filterwarnings("default")
def test_real_ids_are_those_of_transformers(real_draft: Path) -> None:
    """On text in NFC, which its class makes of it first, and without what that takes for a special token."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'reference')")
    file = open_gguf(real_draft)
    tokens, kinds = file.metadata["tokenizer.ggml.tokens"].strings(), file.metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in file.metadata["tokenizer.ggml.merges"].strings()]
    normal = {token: i for i, token in enumerate(tokens) if kinds[i] == Kind.NORMAL}
    reference, text = transformers.Qwen2Tokenizer(vocab=normal, merges=merges), Text.from_weights(file)
    lines = [line for line in hard_lines() if "<" not in line and unicodedata.is_normalized("NFC", line)]
    assert len(lines) > 2000
    for line in lines:
        assert text.encode(line, special=False) == reference.encode(line, add_special_tokens=False), repr(line)


@pytest.mark.embedded
def test_text_survives_the_embedded_tokenizer(embedded_model: Path) -> None:
    text = Text.from_weights(open_gguf(embedded_model))
    for line in hard_lines(1000, seed=3):
        if not any(
            byte in line.encode() for byte in b"\x04\x06\x13\x14\x16\x1d\xf1\xf2"
        ):  # it has no tokens for these
            assert text.decode(text.encode(line, special=False)) == line


@pytest.mark.real
def test_text_survives_the_real_tokenizer(real_draft: Path) -> None:
    text = Text.from_weights(open_gguf(real_draft))
    for line in hard_lines(1000, seed=3):
        assert text.decode(text.encode(line, special=False)) == line


@pytest.mark.embedded
def test_embedded_conversation_is_as_the_template_writes_it(embedded_model: Path) -> None:
    text = Text.from_weights(open_gguf(embedded_model))
    ids = text.render_chat([{"role": "user", "content": "Hi"}])
    assert "".join(map(text.describe, ids)) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.real
def test_real_pair_shares_its_vocabulary(real_target: Path, real_draft: Path) -> None:
    from outpace.vocabulary import compare

    target, draft = (Text.from_weights(open_gguf(path)).vocabulary for path in (real_target, real_draft))
    assert compare(target, draft).verdict == "same"
