"""Speech for Whisper: a WAV file as the features that its encoder reads."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import WhisperFeatureExtractor

from outpace.errors import ModelNotFound, UsageError

RATE = 16_000
"""Samples a second that Whisper hears."""

SECONDS = 30
"""What the encoder takes at once."""

Samples = NDArray[np.float32]


def read_wav(path: str | os.PathLike[str]) -> Samples:
    """Returns [n] samples in [-1, 1] at 16 kHz, channels averaged, other rates resampled within their band.

    Raises UsageError for a file that is no PCM WAV of 1 sample to 30 seconds, ModelNotFound for none.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelNotFound(f"{file}: no such audio file")
    try:
        with wave.open(str(file)) as sound:
            width, channels, rate = sound.getsampwidth(), sound.getnchannels(), sound.getframerate()
            frames = sound.getnframes()
            if not 0 < frames <= SECONDS * rate:
                seconds = frames / rate if rate else 0.0
                raise UsageError(f"{file}: audio must have up to {SECONDS} seconds, got {seconds:.1f}: cut it")
            data = sound.readframes(frames)
    except (wave.Error, EOFError) as error:
        found = str(error) or "it ends too early"
        raise UsageError(f"{file} is no PCM WAV file ({found}): convert it to one") from None
    kinds = {1: ("u1", 128.0, 128.0), 2: ("<i2", 0.0, 32768.0), 4: ("<i4", 0.0, 2147483648.0)}
    if width not in kinds:
        raise UsageError(f"{file}: samples must have 8, 16 or 32 bits, got {8 * width}")
    kind, zero, scale = kinds[width]
    whole = len(data) // (width * channels) * channels
    samples = (
        ((np.frombuffer(data, kind, whole).astype(np.float64) - zero) / scale).reshape(-1, channels).mean(axis=1)
    )
    return resampled(samples, rate).astype(np.float32)


def resampled(samples: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """Returns the samples at 16 kHz: the same spectrum, less what that rate cannot carry."""
    if rate == RATE:
        return samples
    count = max(1, round(len(samples) * RATE / rate))
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    return np.fft.irfft(spectrum, count) * (count / len(samples))


def features(samples: Samples, folder: Path) -> NDArray[np.float32]:
    """Returns [frames, channels] the log-mel features as the folder's preprocessor_config.json asks for them."""
    extractor = WhisperFeatureExtractor.from_pretrained(folder, local_files_only=True)
    made = extractor(samples, sampling_rate=RATE, return_tensors="np")["input_features"][0]
    return np.ascontiguousarray(made.T, np.float32)
