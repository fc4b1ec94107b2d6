"""Drafts and stores made for a target, from names and texts."""

from __future__ import annotations

import errno
import json
import os

import pytest
from refusals import refused

import outpace
from outpace.errors import BadModelFile, UsageError, VocabularyMismatch
from outpace.models.making import fill_store, make_draft
from outpace.vocabulary import Comparison, Difference

pytest.importorskip("outpace._native", reason="the native engine is not built")


def test_a_draft_keeps_the_tokens_of_its_texts_and_those_that_end_one(tiny_llama, tmp_path):
    texts = tmp_path / "t.txt"
    texts.write_text("ab abc ab abc\n" * 3)
    cut = make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[texts], tokens=40, bits=8)
    with outpace.load(tiny_llama, draft=cut.path, threads=1) as model:
        said = set(model.text.encode("ab abc ab abc", special=False))
        kept = set(model.draft.config.output_ids)
        assert said <= kept
        assert model.target.eos_ids <= kept
        assert model.generate("ab abc", raw=True, max_tokens=8, drafter="model", draft_length=2).fault is None


def test_a_relative_with_other_tokens_is_refused(tiny_llama, tmp_path, monkeypatch):
    different = Comparison("different", (Difference(3, "a", "b"),))
    with monkeypatch.context() as patch:
        patch.setattr("outpace.models.making.compare", lambda target, draft: different)
        line = "llama.gguf cannot draft for llama.gguf: different vocabularies: "
        with refused(VocabularyMismatch, line + "id 3 is 'a' in the target, 'b' in the draft"):
            make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf")
    for tokens in (0, 321):
        with refused(UsageError, f"the tokens that a draft keeps must be in [1, 320], got {tokens}"):
            make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", tokens=tokens)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b"{",
            ", line 2: not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (b"[1]", ", line 2: not a JSON object"),
        (b'{"other": 1}', ", line 2: must be an object with a prompt, a text or turns, got {'other': 1}"),
        (b'{"turns": [5]}', ", line 2: must be an object with a prompt, a text or turns, got {'turns': [5]}"),
        (b'{"prompt": "\\ud800"}', ", line 2: holds half of a surrogate pair, which is no text"),
        (b"[" * 100_000, ", line 2: its JSON is nested too deeply"),
        (b'{"prompt": %s}' % (b"1" * 5000), ", line 2: holds a number of over 4300 digits"),
        (b"\xff", ": is not UTF-8"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_texts_that_are_none_are_named(tiny_llama, tmp_path, line, message):
    texts = tmp_path / "t.jsonl"
    texts.write_bytes(b'{"prompt": "a"}\n' + line)
    with refused(BadModelFile, f"{texts}{message}"):
        make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[texts], tokens=40)


def test_texts_that_cannot_be_read_are_named(tiny_llama, tmp_path):
    for path, why in ((tmp_path, errno.EISDIR), (tmp_path / "none.txt", errno.ENOENT)):
        with refused(BadModelFile, f"{path}: cannot be read: {os.strerror(why)}"):
            make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[path], tokens=40)


def test_blank_lines_are_passed_over(tiny_llama, tmp_path):
    texts = tmp_path / "t.jsonl"
    texts.write_text('\n{"prompt": "ab"}\n\n')
    assert make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[texts], tokens=40).tokens >= 40


def test_a_file_without_a_text_is_refused(tiny_llama, tmp_path):
    texts = tmp_path / "t.jsonl"
    texts.write_text("\n\n")
    with refused(UsageError, f"{texts}: holds no text"):
        make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[texts], tokens=40)
    with outpace.load(tiny_llama, threads=1) as model:
        with refused(UsageError, f"{texts}: holds no text"):
            fill_store(model, [texts])
        with refused(UsageError, "longest_prompt must be at least 1, got 0"):
            fill_store(model, [texts], longest_prompt=0)


def test_a_store_is_filled_with_answers_and_grows(tiny_llama, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in ("ab", "abc", "ab " * 300, " ")))
    for times in (1, 2):
        with outpace.load(tiny_llama, threads=1, store=tmp_path / "s") as model:
            assert fill_store(model, [prompts], max_tokens=6, longest_prompt=50) == 2
            assert 0 < model.stores.own.tokens <= times * 2 * (6 + 4)
    with outpace.load(tiny_llama, threads=1, store=tmp_path / "s") as model:
        assert model.stores.own.tokens > 12


def test_answers_written_side_by_side_are_those_written_one_by_one(tiny_llama, tmp_path, monkeypatch):
    prompts = tmp_path / "p.txt"
    prompts.write_text("\n".join("abc" * length for length in range(1, 20)))
    for name, at_once in (("many", 16), ("one", 1)):
        monkeypatch.setattr("outpace.models.making.SIDE_BY_SIDE", at_once)
        with outpace.load(tiny_llama, threads=1, store=tmp_path / name) as model:
            assert fill_store(model, [prompts], max_tokens=9) == 19
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
