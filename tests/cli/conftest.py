"""A model for the commands, whose target is a table and whose text side is a real one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fakes import TableTarget
from outpace.api import Model
from outpace.cli.app import app
from outpace.native.gguf import open_gguf
from outpace.text import Text

Run = Callable[..., Result]


@pytest.fixture
def loads(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Makes every command load the table; returns what it was asked to load."""
    asked: list[dict[str, object]] = []

    def load(target: Path, **options: object) -> Model:
        asked.append({"target": target} | options)
        with closing(open_gguf(tiny_llama)) as file:
            text = Text.from_weights(file)
        helper = TableTarget(320, order=1, seed=3, spread=4.0) if options["draft"] else None
        return Model(TableTarget(320, order=1, spread=4.0, max_length=512), text, helper)

    monkeypatch.setattr("outpace.api.load", load)
    monkeypatch.setattr("outpace.models.resolve", lambda name, **options: Path(name))
    return asked


@pytest.fixture
def run(loads: list[dict[str, object]]) -> Run:
    """Runs a command line on the table."""
    return lambda *arguments, **more: CliRunner().invoke(app, list(arguments), **more)
