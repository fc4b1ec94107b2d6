"""What the tokenizers library would panic of is refused before, so that nothing but our line is printed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from safetensors_writer import described, tiny_folder

from outpace.errors import BadModelFile
from outpace.native.safetensors import open_safetensors
from outpace.text import Text


def charsmap(units: dict[int, int], texts: bytes = b"a\0", count: int = 512) -> str:
    """Returns a precompiled_charsmap of `count` units, those not given being 0."""
    trie = b"".join(units.get(place, 0).to_bytes(4, "little") for place in range(count))
    return base64.b64encode(len(trie).to_bytes(4, "little") + trie + texts).decode()


# The children of the root lie at 256 ^ label. That of "A" has a value, which lies at place 1: the text begins at 0.
ROOT, VALUE = 256 << 10, 1
NODE = (256 ^ ord("A") ^ VALUE) << 10 | 1 << 8 | ord("A")
CAPITAL = {0: ROOT, 256 ^ ord("A"): NODE, VALUE: 0}


def template(*pieces: object) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": [], "special_tokens": {}}


def precompiled(charsmap: object) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SECOND, GONE = {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "<|gone|>", "type_id": 0}}
NO_TEXT = "its normalizer {} no characters"
PANICS: dict[str, tuple[dict[str, Any], str]] = {
    "a token that is gone": (
        {"post_processor": template(GONE)},
        "its post-processor's special_tokens lack '<|gone|>', which its template names",
    ),
    "and deeper": (
        {"post_processor": {"type": "Sequence", "processors": [template(GONE)]}},
        "its post-processor's special_tokens lack '<|gone|>', which its template names",
    ),
    "a second text": (
        {"post_processor": template(SECOND)},
        "its post-processor's template of a single text names a second one, 'B'",
    ),
    "a piece as an array": (
        {"post_processor": template({"Sequence": ["B", 0]})},
        "its post-processor's template names no 'Sequence' by an id",
    ),
    "an id as an object": (
        {"post_processor": template({"Sequence": {"id": {"B": None}, "type_id": 0}})},
        "its post-processor's template names no 'Sequence' by an id",
    ),
    "a template as an array": (
        {"post_processor": [[GONE], [], {}]},
        "its post_processor has an array in the place of an object",
    ),
    "pieces of length 0": (
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        "its pre-tokenizer cuts pieces of no characters",
    ),
    "nothing is prepended": ({"normalizer": {"type": "Prepend", "prepend": ""}}, NO_TEXT.format("prepends")),
    "nothing is replaced": (
        {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}},
        NO_TEXT.format("replaces"),
    ),
    "a normalizer as an array": (
        {"normalizer": {"type": "Sequence", "normalizers": [[{"String": ""}, "x"]]}},
        "its normalizer has an array in the place of an object",
    ),
    "a prefix longer than a token": (
        {"model__continuing_subword_prefix": "##", "model__merges": ["Ġ ##t", "Ġ t"]},
        "its merges must go on with the continuing_subword_prefix '##', got 't'",
    ),
    "no charsmap": (precompiled(None), "its precompiled_charsmap is not base64"),
    "half of base64": (precompiled("AAA"), "its precompiled_charsmap is not base64"),
    "base64 with bits to spare": (precompiled("AAAAAB=="), "its precompiled_charsmap is not base64"),
    "base64 in other letters": (precompiled("é"), "its precompiled_charsmap is not base64"),
    "a charsmap of no bytes": (
        precompiled(""),
        "its precompiled_charsmap is 0 bytes long, which end before its trie does",
    ),
    "a trie that is cut off": (
        precompiled("AAAAEAAA"),
        "its precompiled_charsmap is 6 bytes long, which end before its trie does",
    ),
    "no trie": (
        precompiled(charsmap({}, count=0)),
        "its precompiled_charsmap has a trie of 0 units, not of whole blocks of 256",
    ),
    "a short trie": (
        precompiled(charsmap({}, count=300)),
        "its precompiled_charsmap has a trie of 300 units, not of whole blocks of 256",
    ),
    "texts in no alphabet": (
        precompiled(charsmap(CAPITAL, b"\xff\0")),
        "its precompiled_charsmap holds texts that are not UTF-8",
    ),
    "a root that leads out": (
        precompiled(charsmap({0: 512 << 10})),
        "its precompiled_charsmap has a trie that leads out of itself",
    ),
    "a leaf that leads out": (
        precompiled(charsmap(CAPITAL | {256 ^ ord("A"): 512 << 10 | NODE})),
        "its precompiled_charsmap has a trie that leads out of itself",
    ),
    "a value that leads out": (
        precompiled(charsmap(CAPITAL | {VALUE: 3})),
        "its precompiled_charsmap has a trie that leads out of its texts",
    ),
    "a value within a character": (
        precompiled(charsmap(CAPITAL | {VALUE: 1}, "é\0".encode())),
        "its precompiled_charsmap has a trie that leads out of its texts",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PANICS.values(), ids=PANICS)
def test_what_the_library_would_panic_of(
    tmp_path: Path, changes: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer.json").write_text(described(**changes))
    with refused(BadModelFile, f"{folder / 'tokenizer.json'}: {message}"):
        Text.from_weights(open_safetensors(folder))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "changes",
    [
        precompiled(charsmap(CAPITAL)),
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL]}},
    ],
    ids=["a charsmap", "a normalizer", "a pre-tokenizer"],
)
def test_parts_that_the_library_takes_are_used(
    tmp_path: Path, changes: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer.json").write_text(described(**changes))
    text = Text.from_weights(open_safetensors(folder))
    assert text.decode(text.encode("A cat", special=False)) == ("A cat" if "pre_tokenizer" in changes else "a cat")
    assert capfd.readouterr() == ("", "")
