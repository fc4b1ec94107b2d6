"""docs/cli.md is what the application says of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_cli_docs", ROOT / "scripts" / "generate_cli_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(generator: ModuleType) -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == generator.page()


def test_every_option_has_words_and_a_default_or_says_what_happens_without_it(generator: ModuleType) -> None:
    for line in generator.page().splitlines():
        if line.startswith("| `--"):
            _, name, default, words, _ = line.replace("\\|", "/").split("|")
            assert words.strip(), name
            assert default.strip(), name
