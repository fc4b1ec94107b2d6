"""Who must never know whom, as a table, checked against the imports of every file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import outpace

ROOT = Path(outpace.__file__).parent

TOKENIZERS = (
    *("outpace.tokenizer", "outpace.tokenizer_json", "outpace.tokenizer_checks", "outpace.charsmap"),
    *("outpace.pre_tokenizers", "outpace.sentencepiece"),
)

# part (a module or a package below outpace): prefixes that it must not import
FORBIDDEN = {
    "draft": ("outpace",),
    "types": ("outpace",),
    "errors": ("outpace",),
    "rules": (
        *("outpace.models", "outpace.text", *TOKENIZERS, "outpace.chat_template", "outpace.stops"),
        *("outpace.targets", "outpace.native", "outpace._native", "outpace.drafters"),
        *("outpace.decode", "outpace.control", "outpace.api", "outpace.model", "outpace.generation", "outpace.cli"),
    ),
    "sampling": (
        *("outpace.models", "outpace.text", *TOKENIZERS, "outpace.stops"),
        *("outpace.targets", "outpace.native", "outpace.drafters", "outpace.rules"),
        *("outpace.decode", "outpace.control", "outpace.api", "outpace.model", "outpace.generation", "outpace.cli"),
    ),
    "processors": (
        *("outpace.models", "outpace.text", *TOKENIZERS, "outpace.stops", "outpace.sampling"),
        *("outpace.targets", "outpace.native", "outpace.drafters", "outpace.rules"),
        *("outpace.decode", "outpace.control", "outpace.api", "outpace.model", "outpace.generation", "outpace.cli"),
    ),
    "grammar": ("outpace",),
    "constraint": (
        *("outpace.models", "outpace.targets", "outpace.native", "outpace.drafters", "outpace.rules"),
        *("outpace.decode", "outpace.control", "outpace.api", "outpace.model", "outpace.generation", "outpace.cli"),
    ),
    "drafters": (
        *("outpace.rules", "outpace.decode", "outpace.control", "outpace.targets", "outpace.native"),
        *(
            "outpace.sampling",
            "outpace.noise",
            "outpace.text",
            "outpace.api",
            "outpace.model",
            "outpace.generation",
            "outpace.options",
        ),
    ),
    "targets": ("outpace.drafters", "outpace.rules", "outpace.sampling", "outpace.noise", "outpace.text"),
    "decode": ("outpace",),
    "control": ("outpace",),
    "costs": ("outpace",),
    "theory": (
        *("outpace.models", "outpace.targets", "outpace.drafters", "outpace.text"),
        *("outpace._native", "outpace.decode", "outpace.control", "outpace.api", "outpace.model"),
    ),
    "audit": ("outpace.cli", "outpace.theory", "outpace.bench"),
    "cli": (
        "numpy",
        "outpace.sampling",
        "outpace.processors",
        "outpace.logprobs",
        "outpace.noise",
        "outpace.numerics",
        "outpace.rules.quantities",
    ),
    "serve": (
        "numpy",
        "outpace.sampling",
        "outpace.processors",
        "outpace.logprobs",
        "outpace.noise",
        "outpace.numerics",
        "outpace.rules.quantities",
    ),
}

# what a part may import although the table above forbids its package
ALLOWED = {
    "types": ("outpace.draft",),
    "decode": ("outpace.types",),
    "control": ("outpace.types", "outpace.errors", "outpace.estimates", "outpace.costs"),
    "grammar": ("outpace.errors",),
}

# words that must not occur as names: what a part must not even hear of
UNKNOWN_WORDS = {
    "rules": ("eos", "eos_ids", "max_tokens", "tokenizer", "cache"),
    "sampling": ("eos", "eos_ids", "max_tokens", "tokenizer", "cache"),
    "processors": ("eos", "eos_ids", "max_tokens", "tokenizer", "cache"),
    "decode": ("eos", "eos_ids", "text", "open", "print"),
}


def files(part: str) -> list[Path]:
    folder = ROOT / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{part}.py"]


def imported(path: Path) -> set[str]:
    """Returns what a file imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def violations(part: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(part)
        if path.exists()
        for name in sorted(imported(path))
        if under(name, FORBIDDEN[part]) and not under(name, ALLOWED.get(part, ()))
    ]


@pytest.mark.parametrize("part", FORBIDDEN)
def test_no_part_imports_what_it_must_not_know(part):
    assert violations(part) == []


@pytest.mark.parametrize("path", files("drafters"), ids=lambda path: path.stem)
def test_drafters_do_not_know_each_other(path):
    others = {f"outpace.drafters.{other.stem}" for other in files("drafters")} - {"outpace.drafters.__init__"}
    if path.stem not in ("mixture", "blend"):  # they are made of others
        assert not [name for name in imported(path) if under(name, tuple(others))]


@pytest.mark.parametrize("part", UNKNOWN_WORDS)
def test_no_part_speaks_of_what_it_must_not_know(part):
    for path in files(part):
        for node in ast.walk(ast.parse(path.read_text())):
            word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
            assert word not in UNKNOWN_WORDS[part], f"{path.name} line {node.lineno}"


def test_the_check_sees_every_kind_of_import(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("import outpace.rules\ndef f():\n    from outpace.drafters import ngram\n")
    assert imported(file) == {"outpace.rules", "outpace.drafters.ngram"}


def test_the_round_fits_one_screen():
    assert len((ROOT / "decode.py").read_text().splitlines()) <= 100
