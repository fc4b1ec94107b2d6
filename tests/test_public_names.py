"""What `import outpace` offers, and that it costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import outpace

PUBLIC = [
    *("Model", "Generation", "Result", "Chunk", "Chat", "SamplingParams", "load", "JsonSchema", "Regex"),
    *("RULES", "coupled_verify", "rejection_verify"),
    *("OutpaceError", "UsageError", "ContextOverflow", "ModelError", "BadModelFile", "Unsupported"),
    *("TooLarge", "VocabularyMismatch", "ModelNotFound", "MissingExtra"),
]


def test_the_public_names_are_these():
    assert sorted(outpace.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(outpace, name)
    assert value.__doc__ or not callable(value)
    assert name in dir(outpace)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        outpace.lod  # noqa: B018


def test_importing_the_package_loads_no_heavy_part():
    code = (
        "import sys, outpace; heavy = {'numpy', 'tokenizers', 'jinja2', 'rich', 'typer', 'outpace._native'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
