"""Records llama.cpp's own ids of the hard lines, for test_text_reference.py.

usage: python tests/record_tokens.py      needs llama-cpp-python and the models; writes recorded_tokens.json
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hard_text import READABLE, hard_lines
from tokenizer_writer import SYNTHETIC, synthetic_model

RECORDED = Path(__file__).with_name("recorded_tokens.json")
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b")


def digest(ids: Sequence[Sequence[int]]) -> str:
    """Returns the SHA-256 of one line of decimal ids a text."""
    return hashlib.sha256("\n".join(" ".join(map(str, line)) for line in ids).encode()).hexdigest()


def llama_cpp_ids(path: Path, lines: Sequence[str], *, special: bool) -> list[list[int]]:
    """Returns llama.cpp's ids of each line, without BOS."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return [model.tokenize(line.encode(), add_bos=False, special=special) for line in lines]


def special_lines(lines: Sequence[str]) -> list[str]:
    """Returns the lines on which control tokens are compared: llama.cpp takes </s> for one wherever it is a token."""
    return [line for line in lines if "</s>" not in line]


def comparable(lines: Sequence[str], name: str) -> list[str]:
    """Returns the lines on which a synthetic tokenizer and llama.cpp's must agree.

    llama.cpp takes some texts for control tokens by their names, and its tekken knows neither marks nor capitals
    beyond ASCII, which the pattern that Mistral publishes does.
    """
    kept = [line for line in lines if not any(token in line for token in ("</s>", "<tool_call>", "<|"))]
    if name != "bpe-tekken":
        return kept
    odd = ("Mn", "Mc", "Me", "Lu", "Lt")
    return [line for line in kept if not any(char > "\x7f" and unicodedata.category(char) in odd for char in line)]


def record_synthetic(folder: Path, name: str) -> dict[str, Any]:
    lines = comparable(hard_lines(), name)
    return {"plain": digest(llama_cpp_ids(synthetic_model(folder / f"{name}.gguf", name), lines, special=False))}


def record(path: Path) -> dict[str, Any]:
    lines = hard_lines()
    plain = llama_cpp_ids(path, lines, special=False)
    special = llama_cpp_ids(path, special_lines(lines), special=True)
    return {"plain": digest(plain), "special": digest(special), "readable": plain[: len(READABLE)]}


if __name__ == "__main__":
    from outpace import models

    found = {name: record(models.path(name)) for name in MODELS}
    with tempfile.TemporaryDirectory() as folder:
        found |= {name: record_synthetic(Path(folder), name) for name in SYNTHETIC}
    text = ",\n".join(
        f'"{name}": {{"plain": "{r["plain"]}"'
        + (f', "special": "{r["special"]}", "readable": [\n' if "readable" in r else "")
        + ",\n".join(json.dumps(ids) for ids in r.get("readable", ()))
        + ("\n]}" if "readable" in r else "}")
        for name, r in found.items()
    )
    RECORDED.write_text("{\n" + text + "\n}\n")
