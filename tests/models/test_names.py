"""What a user may call a model, the catalogue, and which models can draft for which."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguf_writer import Tiny, tiny_model
from outpace import models
from outpace.errors import ModelNotFound


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2", "no model is called 'smollm2': did you mean smollm2-135m"),
        ("whatever", "the catalogue has smollm2-135m, "),
        ("models/absent.gguf", r"models/absent\.gguf: no such file"),
        ("/absent/folder", "/absent/folder: no such file or folder"),
        ("../x/../y", "no such file or folder"),
        ("", "is no name of a model"),
        ("a\0b", "is no name of a model"),
    ],
)
def test_names_that_are_nothing_are_refused(name: str, message: str) -> None:
    with pytest.raises(ModelNotFound, match=message):
        models.resolve(name)


def test_files_and_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    assert models.resolve(path) == models.resolve(str(path)) == path
    assert models.resolve(tmp_path) == tmp_path


def test_every_model_of_the_catalogue_is_complete() -> None:
    for name, model in models.catalogue().items():
        assert name == model.name
        assert len(model.sha256) == 64
        assert model.size > 1e6
        assert model.licence
        assert {source.kind for source in model.sources} <= {"hub", "wheel", "parts"}
        assert all("{" not in requirement for source in model.sources for requirement in source.requirements)


def test_drafts_say_which_can_and_why_others_cannot(tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target.gguf", Tiny("qwen2", vocab_size=352, tied=False))
    tiny_model(tmp_path / "small.gguf", Tiny(layers=1))
    tiny_model(tmp_path / "large.gguf", Tiny(layers=9))
    tiny_model(tmp_path / "other.gguf", **{"tokenizer.ggml.tokens": [f"t{i}" for i in range(320)]})
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    choices = {choice.name: choice for choice in models.drafts_for(target)}
    assert choices["small.gguf"].usable
    assert choices["small.gguf"].reason.startswith("same vocabulary, ")
    reasons = {name: choice.reason for name, choice in choices.items() if not choice.usable}
    assert reasons["large.gguf"] == "same vocabulary, but not smaller than target.gguf"
    assert "id 3 is 'Ā' in the target, 't3' in the draft" in reasons["other.gguf"]
    assert "the version at byte 4" in reasons["broken.gguf"]
    assert reasons["qwen2.5-coder-0.5b"] == "not on this machine: outpace models pull qwen2.5-coder-0.5b"
    assert "target.gguf" not in choices
