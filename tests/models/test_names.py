"""What a user may call a model, the catalogue, and which models can draft for which."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from refusals import refused

from gguf_writer import Tiny, tiny_model
from outpace import models
from outpace.errors import BadModelFile, ModelNotFound

NAMES = ", ".join(models.catalogue())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2", "no model is called 'smollm2': did you mean smollm2-135m?"),
        ("whatever", f"no model is called 'whatever': the catalogue has {NAMES}"),
        ("a\nb", f"no model is called 'a\\nb': the catalogue has {NAMES}"),
        ("x" * 300, f"no model is called '{'x' * 77}...': the catalogue has {NAMES}"),
        ("models/absent.gguf", "models/absent.gguf: no such file or folder"),
        ("/absent/folder", "/absent/folder: no such file or folder"),
        ("../x/../y", "../x/../y: no such file or folder"),
        ("~nobody-of-this-name/m.gguf", "~nobody-of-this-name/m.gguf: no such file or folder"),
        ("a/b\nc", "a/b\\nc: no such file or folder"),
        ("", "'' is no name of a model"),
        ("a\0b", "'a\\x00b' is no name of a model"),
    ],
)
def test_names_that_are_nothing_are_refused(name: str, message: str) -> None:
    with refused(ModelNotFound, message):
        models.resolve(name)


def test_names_that_are_not_here_say_how_to_get_them() -> None:
    for name in ("qwen2.5-coder-1.5b", "owner/name", "owner/name:Q8_0"):
        with refused(ModelNotFound, f"{name} is not on this machine: outpace models pull {name}"):
            models.resolve(name, allow_pull=False)
    with refused(ModelNotFound, "owner/name is not in the cache"):
        models.remove("owner/name")
    with refused(ModelNotFound, f"no model is called 'whatever': the catalogue has {NAMES}"):
        models.remove("whatever")


def test_links_that_lead_nowhere_are_no_models(tmp_path: Path) -> None:
    loop, gone = tmp_path / "loop", tmp_path / "gone"
    loop.symlink_to(loop)
    gone.symlink_to(tmp_path / "nowhere")
    for path in (loop, gone):
        with refused(ModelNotFound, f"{path}: no such file or folder"):
            models.resolve(path)


def test_targets_of_drafts_are_files(tmp_path: Path) -> None:
    with refused(ModelNotFound, f"{tmp_path / 'none.gguf'}: no such file"):
        models.drafts_for(tmp_path / "none.gguf")
    with refused(ModelNotFound, f"{tmp_path}: has no config.json"):
        models.drafts_for(tmp_path)
    long = Path("x" * 300)
    with refused(BadModelFile, f"{long}: cannot be opened: {os.strerror(errno.ENAMETOOLONG)}"):
        models.drafts_for(long)


def test_folders_of_models_that_are_none_are_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "m.gguf")
    for places in (str(target), "/nowhere", "~nobody-of-this-name", "x" * 5000):
        monkeypatch.setenv("OUTPACE_MODELS", places)
        assert models.list_models()
        assert models.drafts_for(target)


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
    assert reasons["other.gguf"] == "different vocabularies: id 3 is 'Ā' in the target, 't3' in the draft"
    assert reasons["broken.gguf"] == "the version at byte 4 needs 4 bytes, the file has 0 left"
    assert reasons["qwen2.5-coder-0.5b"] == "not on this machine: outpace models pull qwen2.5-coder-0.5b"
    assert "target.gguf" not in choices
