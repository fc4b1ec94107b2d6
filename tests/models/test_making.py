"""Drafts and stores made for a target, from names and texts."""

from __future__ import annotations

import json

import pytest

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
        with pytest.raises(VocabularyMismatch, match="cannot draft for"):
            make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf")
    with pytest.raises(UsageError, match="must be 1 to 320, got 0"):
        make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", tokens=0)


@pytest.mark.parametrize("line", ["{", "[1]", '{"other": 1}', "\ud800"])
def test_texts_that_are_none_are_named(tiny_llama, tmp_path, line):
    texts = tmp_path / "t.jsonl"
    texts.write_bytes(line.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadModelFile, match=r"t\.jsonl"):
        make_draft(tiny_llama, tiny_llama, tmp_path / "d.gguf", texts=[texts], tokens=40)


def test_a_store_is_filled_with_answers_and_grows(tiny_llama, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in ("ab", "abc", "ab " * 300, " ")))
    for times in (1, 2):
        with outpace.load(tiny_llama, threads=1, store=tmp_path / "s") as model:
            assert fill_store(model, [prompts], max_tokens=6, longest_prompt=50) == 2
            assert 0 < model.stores.own.tokens <= times * 2 * (6 + 4)
    with outpace.load(tiny_llama, threads=1, store=tmp_path / "s") as model:
        assert model.stores.own.tokens > 12
