"""A model cut down to a draft: the same logits for the tokens that it keeps, none for the others."""

from __future__ import annotations

import errno
import os
from contextlib import closing

import numpy as np
import pytest
from refusals import refused

import outpace
from gguf_writer import ARCHITECTURES, Tiny, tiny_model
from outpace.errors import BadModelFile, UsageError
from outpace.native.cutting import cut_down
from outpace.native.gguf import open_gguf
from outpace.types import Draft, Prompt

pytest.importorskip("outpace._native", reason="the native engine is not built")
from outpace.native.loading import load_native

KEPT = [0, 3, 7, 100, 250, 319]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "free head"])
def whole(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("whole") / "m.gguf", Tiny(tied=request.param), seed=3)


def rows(path):
    target = load_native(path, threads=1)
    session, _ = target.open(Prompt((1, 2, 3)))
    return target.score_many([(session, Draft.chain([4, 5]))])[0].logits


def test_kept_tokens_have_the_same_logits_and_others_none(whole, tmp_path):
    cut = cut_down(whole, tmp_path / "d.gguf", output_ids=KEPT, bits=None)
    full, trimmed = rows(whole), rows(cut.path)
    assert trimmed.shape == full.shape
    np.testing.assert_allclose(trimmed[:, KEPT], full[:, KEPT], rtol=0.02, atol=0.02)
    others = np.setdiff1d(np.arange(full.shape[1]), KEPT)
    assert (trimmed[:, others] == -np.inf).all()
    assert cut.pass_bytes < cut.source_pass_bytes


def test_layers_can_be_left_out_and_bits_taken_away(whole, tmp_path):
    cut = cut_down(whole, tmp_path / "d.gguf", output_ids=KEPT, bits=4, layers=[1], target="big")
    with closing(open_gguf(cut.path)) as file:
        assert file.config.layers == 1
        assert file.config.output_ids == tuple(KEPT)
        assert file.tensors["blk.0.ffn_up.weight"].format == "IQ4_NL"
        assert file.metadata["outpace.draft.target"] == "big"
    assert np.isfinite(rows(cut.path)[:, KEPT]).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["model", "mixture"])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_it_drafts_for_the_whole_and_keeps_its_text(whole, tmp_path, temperature, drafter, rule):
    cut = cut_down(whole, tmp_path / "d.gguf", output_ids=range(0, 320, 2), bits=8)
    with outpace.load(whole, draft=cut.path, threads=1) as model:
        wanted = {"raw": True, "max_tokens": 24, "temperature": temperature, "seed": 1}
        drafted = model.generate("ab abc", drafter=drafter, draft_length=3, rule=rule, **wanted)
        assert drafted.drafted
        assert drafted.fault is None
        if rule == "coupled" or not temperature:
            assert drafted.tokens == model.generate("ab abc", drafter="none", **wanted).tokens


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"output_ids": []}, "the tokens that a draft keeps must be some of 0 to 319, got none"),
        ({"output_ids": [320]}, "the tokens that a draft keeps must be some of 0 to 319, got 320 to 320"),
        ({"bits": 3}, "bits must be 4 or 8, got 3"),
        ({"layers": [2]}, "the layers that a draft keeps must be some of 0 to 1, got [2]"),
    ],
)
def test_what_cannot_be_cut_is_said(whole, tmp_path, how, message):
    with refused(UsageError, message):
        cut_down(whole, tmp_path / "d.gguf", **({"output_ids": KEPT} | how))
    assert not list(tmp_path.iterdir())


def test_a_draft_never_takes_the_place_of_its_source(whole, tmp_path):
    before = whole.read_bytes()
    with refused(UsageError, f"{whole} is the model that is cut down: name another file"):
        cut_down(whole, whole, output_ids=KEPT)
    assert whole.read_bytes() == before


def test_a_place_that_cannot_be_written_is_said(whole, tmp_path):
    line = f"{whole / 'd.gguf'} cannot be written: {os.strerror(errno.ENOTDIR)}; nothing was kept"
    with refused(UsageError, line):
        cut_down(whole, whole / "d.gguf", output_ids=KEPT)
    line = f"{tmp_path} cannot be written: {os.strerror(errno.EISDIR)}; nothing was kept"
    with refused(UsageError, line):
        cut_down(whole, tmp_path, output_ids=KEPT)


def test_only_plain_files_are_cut(tmp_path):
    with refused(UsageError, f"{tmp_path}: only a GGUF file can be cut down"):
        cut_down(tmp_path, tmp_path / "d.gguf", output_ids=KEPT)
    path = tiny_model(tmp_path / "m.gguf", ARCHITECTURES["qwen3"])
    with refused(UsageError, f"{path}: only llama and qwen2 models can be cut down, got qwen3"):
        cut_down(path, tmp_path / "d.gguf", output_ids=KEPT)


def test_a_cut_model_is_not_cut_again(whole, tmp_path):
    cut = cut_down(whole, tmp_path / "d.gguf", output_ids=KEPT, bits=None)
    with refused(UsageError, f"{cut.path}: its output was cut already; cut the model that it was made from"):
        cut_down(cut.path, tmp_path / "e.gguf", output_ids=KEPT)


@pytest.mark.parametrize("ids", [[3, 3], [5, 4], [-1, 2], [0, 320]])
def test_wrong_ids_in_a_file_are_refused(tmp_path, ids):
    from outpace.native.gguf_writing import NewTensor
    from outpace.native.gguf_writing import write_gguf as write

    source = tiny_model(tmp_path / "m.gguf", Tiny(tied=False), seed=3)
    with closing(open_gguf(source)) as file:
        keys = file.keys()
        tensors = [
            NewTensor(i.name, i.format, 2 if i.name == "output.weight" else i.rows, i.cols,
                      lambda i=i: file.read(i.name, 0, 2 if i.name == "output.weight" else i.rows))
            for i in file.tensors.values()
        ]  # fmt: skip
        write(tmp_path / "bad.gguf", keys, {"outpace.draft.output_ids": ids}, tensors)
    line = f"outpace.draft.output_ids must be ascending ids in [0, 320), got {ids[0]} to {ids[1]}"
    with refused(BadModelFile, f"{tmp_path / 'bad.gguf'}: {line}"):
        open_gguf(tmp_path / "bad.gguf")
