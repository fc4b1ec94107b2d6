"""Whisper base hears what is said, whatever drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import outpace

pytestmark = pytest.mark.real
SPEECH = Path(__file__).with_name("boats.wav")


@pytest.fixture(scope="module")
def model(whisper_base):
    return outpace.load(whisper_base, engine="torch", device="cpu", dtype="float32", threads=2)


@pytest.fixture(scope="module")
def heard(model):
    return model.transcription(SPEECH, drafter="none", max_tokens=48).run()


def test_it_writes_what_is_said(heard):
    assert "boats sailed" in heard.text
    assert heard.finish == "stop"


@pytest.mark.parametrize("length", [4, None])
@pytest.mark.parametrize("drafter", ["ngram", "bigram", "suffix"])
def test_copied_drafts_change_nothing(model, heard, drafter, length):
    result = model.transcription(SPEECH, drafter=drafter, draft_length=length, max_tokens=48).run()
    assert (result.tokens, result.finish, result.fault) == (heard.tokens, "stop", None)


@pytest.mark.parametrize("layers", [1, 3, 5])
def test_a_decoder_cut_down_reads_the_targets_encoder_output_and_changes_nothing(model, heard, layers):
    model.draft = model.target.cut_down(layers)
    encoded = []
    handle = model.target.model.get_encoder().register_forward_hook(lambda *_: encoded.append(1))
    result = model.transcription(SPEECH, drafter="model", draft_length=3, max_tokens=48).run()
    handle.remove()
    assert (result.tokens, result.fault, len(encoded)) == (heard.tokens, None, 1)
    assert result.drafted > 0
    assert result.accepted > 0 or layers < 5  # untrained exits before that are never right
