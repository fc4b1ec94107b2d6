"""`outpace models`: what goes to stdout is what a script can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gguf_writer import Tiny, tiny_model
from outpace import models
from outpace.cli.app import app

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no other place where a model could be."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *names, **options: str(tmp_path / "cache"))
    monkeypatch.delenv("OUTPACE_MODELS", raising=False)
    monkeypatch.setattr("outpace.models.store._package_folders", lambda package: [])
    models.cache_folder().mkdir(parents=True)
    return models.cache_folder()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["models", *arguments])


def place(cache: Path) -> Path:
    """Makes the cache hold a file that passes for the embedded model: of its name and size."""
    model = models.catalogue()[NAME]
    file = cache / model.file
    with file.open("wb") as out:
        out.truncate(model.size)
    return file


def test_the_catalogue_is_listed_with_what_is_here(cache: Path) -> None:
    place(cache)
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["name", "model", "licence", "size", "here"]
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [
        (name, "yes" if name == NAME else "no") for name in models.catalogue()
    ]


def test_the_list_as_json(cache: Path) -> None:
    file = place(cache)
    record = json.loads(run("list", "--json").stdout)
    assert record["cache"] == str(cache)
    assert record["models"][0]["path"] == str(file)
    assert record["models"][1].keys() == {"name", "title", "licence", "size", "path"}


def test_pull_prints_where_the_model_is_and_nothing_else(cache: Path) -> None:
    file = place(cache)
    result = run("pull", NAME, NAME)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{file}\n{file}\n", "")


def test_pulling_says_how_much_before_it_begins(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(name: str, progress):  # type: ignore[no-untyped-def]
        for done in (0, 5, 10):
            progress(done * 1_000_000, 98_000_000)
        return cache / "x.gguf"

    monkeypatch.setattr(models, "pull", pull)
    assert run("pull", NAME).stderr == f"pulling {NAME} (98 MB)\n"


def test_path_fetches_nothing(cache: Path) -> None:
    result = run("path", NAME)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"outpace: error: {NAME} is not on this machine: outpace models pull {NAME}\n"
    assert run("path", str(cache)).stdout == f"{cache}\n"


def test_rm_removes(cache: Path) -> None:
    file = place(cache)
    assert run("rm", NAME).stderr == f"removed {file}\n"
    assert not file.exists()
    assert run("rm", NAME).exit_code == 2


def test_an_unknown_name_is_answered_with_one_that_comes_close() -> None:
    result = run("pull", "smolm2-135m")
    assert result.exit_code == 2
    assert result.stderr == "outpace: error: no model is called 'smolm2-135m': did you mean smollm2-135m?\n"


def test_drafts_says_who_can_and_why_the_others_cannot(tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target.gguf", Tiny(layers=3))
    tiny_model(tmp_path / "draft.gguf", Tiny(layers=1))
    lines = run("drafts", str(target)).stdout.splitlines()
    assert lines[0].startswith("yes  draft.gguf: same vocabulary, ")
    assert f"no   {NAME}: not on this machine: outpace models pull {NAME}" in lines
    record = json.loads(run("drafts", str(target), "--json").stdout)
    assert record["drafts"][0]["path"] == str(tmp_path / "draft.gguf")
