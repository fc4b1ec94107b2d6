"""Models for the tests: tiny ones written on the spot, and the real ones where they are present."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import outpace
from gguf_writer import Tiny, tiny_model
from outpace import models
from outpace.errors import OutpaceError
from outpace.models.store import search_folders

# The same examples in every run, and no verdict by the clock: the machine may be busy.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def _cached(name: str) -> Path:
    """Returns the file of a catalogue model that is on this machine, or skips the test."""
    try:
        return models.path(name)
    except OutpaceError as error:
        pytest.skip(f"{error}")


@pytest.fixture(scope="session", autouse=True)
def _costs_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What passes cost in a test is no business of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTPACE_PROFILES", str(tmp_path_factory.mktemp("costs")))
        yield


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The embedded model's file."""
    return _cached("smollm2-135m")


@pytest.fixture(scope="session")
def real_target() -> Path:
    """The real pair's target."""
    return _cached("qwen2.5-coder-1.5b")


@pytest.fixture(scope="session")
def real_draft() -> Path:
    """The real pair's draft model."""
    return _cached("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """A real Gemma 3, of windows and a SentencePiece vocabulary."""
    return _cached("gemma3-270m")


@pytest.fixture(scope="session")
def whisper_base() -> Path:
    """Whisper base as a folder of transformers, `whisper-base` in one of the folders that OUTPACE_MODELS names."""
    for folder in search_folders():
        if (folder / "whisper-base" / "model.safetensors").is_file():
            return folder / "whisper-base"
    pytest.skip("no folder whisper-base where OUTPACE_MODELS says")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama in f32 with 320 tokens."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "llama.gguf")


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Qwen2 (biases, free head) with the tokens of `tiny_llama`, padded to 352 rows."""
    shape = Tiny("qwen2", vocab_size=352, tied=False)
    return tiny_model(tmp_path_factory.mktemp("tiny") / "qwen2.gguf", shape, seed=1)


@pytest.fixture(scope="module")
def native(tiny_llama: Path) -> outpace.Model:
    """The tiny Llama on the native engine, drafting for itself."""
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    return outpace.load(tiny_llama, draft=tiny_llama, threads=1)
