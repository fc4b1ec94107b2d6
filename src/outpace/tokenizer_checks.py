"""What the tokenizers library does not check of a tokenizer.json.

It would take the time of many texts for one, or panic and say so on stderr by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outpace import charsmap
from outpace.errors import BadModelFile, Unsupported
from outpace.native.metadata import quoted
from outpace.pre_tokenizers import JSON_PATTERNS


def check_patterns(described: Mapping[str, Any], folder: Path) -> None:
    """Raises Unsupported, naming the folder, when a text is cut or changed by a pattern that we do not know."""
    for node in _objects([described.get("pre_tokenizer"), described.get("normalizer")]):
        pattern = node.get("Regex")
        if pattern is not None and pattern not in JSON_PATTERNS:
            raise Unsupported(f"{folder}: the tokenizer's pattern {quoted(str(pattern))} is not one that we know")


def check_parts(described: Mapping[str, Any], path: Path) -> None:
    """Raises BadModelFile, naming the file and the fault, where the library would panic as it loads or encodes.

    Parts are known by their fields: the library does without their types.
    """
    faults = [_fault_of_model(described.get("model"))]
    faults += [_fault_of_form(described, name) for name in ("normalizer", "pre_tokenizer", "post_processor")]
    faults += [_fault_of_normalizer(node) for node in _objects(described.get("normalizer"))]
    faults += [_fault_of_pre_tokenizer(node) for node in _objects(described.get("pre_tokenizer"))]
    faults += [_fault_of_template(node) for node in _objects(described.get("post_processor"))]
    fault = next((fault for fault in faults if fault is not None), None)
    if fault is not None:
        raise BadModelFile(f"{path}: {fault}")


def _objects(part: object) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of a part of the file, outer ones first."""
    rest = [part]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            yield node
            rest += node.values()
        elif isinstance(node, list):
            rest += node


def _fault_of_form(described: Mapping[str, Any], name: str) -> str | None:
    """The library takes an array of values for the object that they would be the fields of."""
    rest: list[Any] = [[described.get(name)]]
    while rest:
        node = rest.pop()
        if isinstance(node, list) and any(isinstance(item, list) for item in node):
            return f"its {name} has an array in the place of an object"
        rest += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return None


def _fault_of_model(model: object) -> str | None:
    """The library cuts the prefix off the second part of every merge."""
    prefix = model.get("continuing_subword_prefix") if isinstance(model, dict) else None
    merges = model.get("merges") if isinstance(model, dict) else None
    if not prefix or not isinstance(prefix, str) or not isinstance(merges, list):
        return None
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    seconds = (pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str))
    wrong = next((second for second in seconds if not second.startswith(prefix)), None)
    if wrong is None:
        return None
    return f"its merges must go on with the continuing_subword_prefix {quoted(prefix)}, got {quoted(wrong)}"


def _fault_of_normalizer(node: Mapping[str, Any]) -> str | None:
    if node.get("type") == "Precompiled":
        fault = charsmap.fault_of(node.get("precompiled_charsmap"))
        return None if fault is None else f"its precompiled_charsmap {fault}"
    # The library loses count of a text's bytes where it puts characters in the place of none.
    if node.get("prepend") == "":
        return "its normalizer prepends no characters"
    return "its normalizer replaces no characters" if node.get("pattern") == {"String": ""} else None


def _fault_of_pre_tokenizer(node: Mapping[str, Any]) -> str | None:
    return "its pre-tokenizer cuts pieces of no characters" if node.get("length") == 0 else None


def _fault_of_template(node: Mapping[str, Any]) -> str | None:
    pieces, known = node.get("single"), node.get("special_tokens")
    if not isinstance(pieces, list) or not isinstance(known, dict):
        return None
    for piece in pieces:
        for kind, what in piece.items() if isinstance(piece, dict) else ():
            name = what.get("id") if isinstance(what, dict) else None
            if not isinstance(name, str):
                return f"its post-processor's template names no {quoted(kind)} by an id"
            if kind == "SpecialToken" and name not in known:
                return f"its post-processor's special_tokens lack {quoted(name)}, which its template names"
            if kind == "Sequence" and name == "B":
                return "its post-processor's template of a single text names a second one, 'B'"
    return None
