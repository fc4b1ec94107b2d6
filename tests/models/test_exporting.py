"""A GGUF file as a folder of transformers: the same numbers, tokens and texts on every engine."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest
from refusals import refused
from tokenizer_writer import synthetic_model

import outpace
from gguf_writer import ARCHITECTURES, Tiny, tiny_model
from outpace import models
from outpace.errors import Unsupported, UsageError
from outpace.models.exporting import bfloat16
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.text import Text
from outpace.vocabulary import Kind, compare

QUESTION = "Say <|im_start|> 12 times, über alles."


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def file(request, tmp_path_factory):
    shape = Tiny(request.param, vocab_size=320, tied=request.param == "llama")
    return tiny_model(tmp_path_factory.mktemp("export") / f"{request.param}.gguf", shape, seed=3)


@pytest.fixture(scope="module")
def folder(file):
    return models.export(file, file.parent / f"{file.stem}-folder", "float32")


def test_the_native_engine_writes_the_same_text_from_both(file, folder):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    for question in (QUESTION, "the the"):
        texts = [outpace.load(path, threads=1).generate(question, max_tokens=30).tokens for path in (file, folder)]
        assert texts[0] == texts[1]


def test_the_tokenizer_gives_the_same_ids_in_all_three_places(file, folder):
    transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
    ours, again = Text.from_weights(open_gguf(file)), Text.from_weights(open_safetensors(folder))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in (QUESTION, "a  b\n\n", "<|im_start|>user\nhi<|im_end|>"):
        ids = ours.encode(text, special=True)
        assert again.encode(text, special=True) == ids
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    messages = [{"role": "user", "content": "hello"}]
    assert again.render_chat(messages) == ours.render_chat(messages)
    assert again.eos_ids == ours.eos_ids


def test_transformers_computes_what_the_native_engine_does(file, folder):
    pytest.importorskip("transformers", reason="needs the extra 'torch'")
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    native = outpace.load(file, threads=1)
    torch = outpace.load(folder, engine="torch", threads=1, device="cpu")
    assert torch.target.engine == "torch"
    for question in (QUESTION, "one two three"):
        results = [model.generate(question, max_tokens=30, drafter="none") for model in (native, torch)]
        assert results[0].text == results[1].text
        drafted = torch.generate(question, max_tokens=30, draft_length=4)
        assert drafted.tokens == results[1].tokens


@pytest.mark.parametrize(("engine", "draft_engine"), [("torch", "native"), ("native", "torch")])
def test_one_engine_drafts_for_the_other(file, folder, engine, draft_engine):
    pytest.importorskip("transformers", reason="needs the extra 'torch'")
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    places = {"torch": folder, "native": file}
    model = outpace.load(
        places[engine], draft=places[draft_engine], engine=engine, draft_engine=draft_engine, threads=1, device="cpu"
    )
    for options in ({}, {"temperature": 1.0, "seed": 4}, {"temperature": 1.0, "seed": 4, "rule": "rejection"}):
        result = model.generate("one two three", max_tokens=24, draft_length=3, **options)
        assert result.fault is None
        assert result.acceptance_rate > 0.9
        if options.get("rule") is None:
            assert result.tokens == model.generate("one two three", max_tokens=24, drafter="none", **options).tokens


def test_bfloat16_rounds_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, 1e-40, np.inf, np.nan, 3.3895314e38], np.float32)
    expected = [0x3F80, 0x3F80, 0x3F82, 0xC020, 0x0001, 0x7F80, None, 0x7F7F]
    for bits, wanted in zip(bfloat16(values).tolist(), expected, strict=True):
        assert bits == wanted if wanted is not None else bits & 0x7FFF > 0x7F80


def test_a_folder_that_exists_is_left_alone(file, folder):
    with refused(UsageError, f"{folder} exists already: name a new folder, or remove it"):
        models.export(file, folder)


def test_what_cannot_be_exported_is_said(file, tmp_path):
    with refused(UsageError, f"{tmp_path} is a folder already: only GGUF files are exported"):
        models.export(tmp_path, tmp_path / "again")
    with refused(UsageError, "dtype must be one of bfloat16, float32, got 'int8'"):
        models.export(file, tmp_path / "again", "int8")
    for name, shape in ARCHITECTURES.items():
        if name in ("llama", "qwen2"):
            continue
        source = tiny_model(tmp_path / f"{name}.gguf", shape)
        line = f"{name}.gguf: architecture {shape.architecture!r} has no export; plain llama, qwen2 have"
        with refused(Unsupported, line):
            models.export(source, tmp_path / "again")
    source = synthetic_model(tmp_path / "spm.gguf", "spm-plain")
    with refused(Unsupported, "a SentencePiece vocabulary has no tokenizer.json here; byte-level BPE has"):
        models.export(source, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_folder_that_cannot_be_written_is_said(file, tmp_path):
    line = f"{file / 'inside'} cannot be written: {os.strerror(errno.EEXIST)}; nothing was kept"
    with refused(UsageError, line):
        models.export(file, file / "inside")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with refused(UsageError, f"{tmp_path / 'loop'} exists already: name a new folder, or remove it"):
        models.export(file, tmp_path / "loop")


def test_a_failed_export_leaves_nothing(file, tmp_path, monkeypatch):
    monkeypatch.setattr("outpace.models.exporting.json_of", lambda model: {}["no"])
    with pytest.raises(KeyError):
        models.export(file, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_the_config_says_what_the_file_is(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == folder.name.split("-")[0]
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"]


def test_padding_is_no_token_of_the_folder(tmp_path):
    padded = tiny_model(tmp_path / "padded.gguf", Tiny("qwen2", vocab_size=352, tied=False))
    folder = models.export(padded, tmp_path / "folder", "float32")
    written = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    here, there = (Text.from_weights(file).vocabulary for file in (open_gguf(padded), open_safetensors(folder)))
    assert len(written) == len(here) - len(here.of_kind(Kind.UNUSED)) < 352
    assert compare(there, here).verdict == "same"
