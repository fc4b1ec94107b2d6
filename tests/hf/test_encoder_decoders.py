"""Encoder-decoders by name: text and speech in, the same text out whatever drafts."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

from refusals import refused
from transformers import WhisperFeatureExtractor
from typer.testing import CliRunner

import outpace
from outpace.cli.app import app
from outpace.errors import ModelNotFound, UsageError
from outpace.hf.speech import RATE, read_wav, resampled
from tiny_folders import byte_level, pieces, saved

SPEECH = Path(__file__).parent / "boats.wav"
"""'Twelve boats sail to the island.', by espeak-ng, 16 kHz."""


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("t5") / "t5", "t5", pieces(), eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    folder = saved(tmp_path_factory.mktemp("whisper") / "w", "whisper", byte_level(), eos_token="<end>")
    WhisperFeatureExtractor(feature_size=8, chunk_length=1, hop_length=400, n_fft=400).save_pretrained(folder)
    return folder


def test_a_text_is_read_by_the_encoder_and_answered_by_the_decoder(t5):
    model = outpace.load(t5, draft=t5, engine="torch", device="cpu", threads=1)
    assert model.text.source("the sea") == [3, 4, 1]
    texts = {}
    for drafter in ("none", "ngram", "model", "bigram"):
        for temperature in (0.0, 1.0):
            result = model.generate(
                "the sea is deep", drafter=drafter, temperature=temperature, seed=5, max_tokens=20
            )
            assert result.fault is None
            texts.setdefault(temperature, set()).add(result.text)
    assert {len(found) for found in texts.values()} == {1}
    assert not any(text.startswith(" ") for found in texts.values() for text in found)


def test_pieces_come_back_as_the_tokenizer_itself_writes_them(t5):
    text = outpace.load(t5, engine="torch", device="cpu", threads=1).text
    ids = text.source("the deep sea is xyz")
    stream = text.stream()
    assert "".join(stream.feed(id)[0] for id in ids) + stream.finish() == pieces().decode(ids)


def test_a_conversation_is_refused(t5):
    model = outpace.load(t5, engine="torch", device="cpu", threads=1)
    with refused(UsageError, "t5 is an encoder-decoder: its prompt is one text, not a conversation"):
        model.generate([{"role": "user", "content": "hello"}])
    with refused(UsageError, "t5 hears nothing: audio needs a folder of Whisper and engine 'torch'"):
        model.transcription(SPEECH)


def test_speech_gives_the_same_text_with_every_drafter(whisper):
    model = outpace.load(whisper, engine="torch", device="cpu", threads=1)
    model.draft = model.target.cut_down(1)
    texts = set()
    for drafter in ("none", "ngram", "model"):
        result = model.transcription(SPEECH, drafter=drafter, max_tokens=24, draft_length=None).run()
        assert result.fault is None
        texts.add(result.tokens)
    assert len(texts) == 1


def test_the_command_transcribes(whisper):
    arguments = ["generate", "--engine", "torch", "--device", "cpu", "-m", str(whisper), "--threads", "1"]
    done = CliRunner().invoke(app, [*arguments, "--audio", str(SPEECH), "--max-tokens", "8", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["tokens"]) == 8
    assert re.fullmatch(r"w: engine torch, cpu float32( packed)?, eager passes\n", done.stderr)
    for wrong in (["--n", "2"], ["--system", "x"], ["a question"]):
        failed = CliRunner().invoke(app, [*arguments, "--audio", str(SPEECH), *wrong])
        assert failed.exit_code == 2
        assert "--audio is transcribed as it is" in failed.output


def test_a_wav_file_becomes_samples_at_16_khz(tmp_path):
    tone = np.sin(np.arange(8000) * 2 * np.pi * 440 / 8000)
    for width, kind, scale in ((2, "<i2", 32767), (4, "<i4", 2147483647)):
        file = tmp_path / f"{width}.wav"
        with wave.open(str(file), "wb") as sound:
            sound.setnchannels(2)
            sound.setsampwidth(width)
            sound.setframerate(8000)
            sound.writeframes(np.repeat((tone * scale).astype(kind), 2).tobytes())
        samples = read_wav(file)
        assert len(samples) == RATE
        assert np.allclose(samples, np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE), atol=1e-3)
    assert np.array_equal(resampled(tone, RATE), tone)


def test_what_is_no_short_wav_is_refused(tmp_path):
    with refused(ModelNotFound, f"{tmp_path / 'none.wav'}: no such audio file"):
        read_wav(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("hello")
    with refused(UsageError, f"{tmp_path / 'text.wav'} is no PCM WAV file (it ends too early): convert it to one"):
        read_wav(tmp_path / "text.wav")
    with wave.open(str(tmp_path / "long.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(100)
        sound.writeframes(bytes(3100))
    with refused(UsageError, f"{tmp_path / 'long.wav'}: audio must have up to 30 seconds, got 31.0: cut it"):
        read_wav(tmp_path / "long.wav")
