"""llama.cpp beside ours, where it is installed; a sentence where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outpace.bench.peers import LlamaCpp
from outpace.errors import MissingExtra, ModelError


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingExtra) as error:
        LlamaCpp(Path("model.gguf"), threads=1, context=8)
    assert str(error.value) == (
        "the comparison with llama.cpp (--peers) needs the extra 'peers': pip install 'outpace[peers]'"
    )


def test_a_file_that_it_cannot_load_is_named(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"llama\.cpp cannot load .*broken\.gguf"):
        LlamaCpp(tmp_path / "broken.gguf", threads=1, context=8)


@pytest.mark.embedded
def test_it_scores_and_prefills_over_and_over(embedded_model: Path) -> None:
    pytest.importorskip("llama_cpp")
    with LlamaCpp(embedded_model, threads=1, context=16) as peer:
        for _ in range(3):
            peer.score(8)
            peer.prefill(32)


@pytest.mark.embedded
def test_a_context_outlives_another_that_could_not_be_made(embedded_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with LlamaCpp(embedded_model, threads=1, context=16) as peer:
        with pytest.raises(ModelError):
            LlamaCpp(tmp_path / "broken.gguf", threads=1, context=8)
        peer.score(1)
