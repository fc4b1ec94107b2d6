"""Which models can draft for another."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outpace.errors import OutpaceError
from outpace.models.catalogue import catalogue
from outpace.models.store import cache_folder, locate, search_folders
from outpace.native.gguf import GgufFile, open_gguf
from outpace.native.safetensors import SafetensorsFolder, open_safetensors
from outpace.tokenizer import vocabulary_from_gguf
from outpace.tokenizer_json import token_model_from_folder
from outpace.vocabulary import Vocabulary, compare


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """A model that was considered. usable: it shares the target's tokens and is smaller; reason: why (not)."""

    name: str
    path: Path | None
    usable: bool
    reason: str


def drafts_for(target: Path | str) -> list[DraftChoice]:
    """Returns the catalogue's models and those in the cache, in OUTPACE_MODELS and beside the target, usable first.

    Raises ModelNotFound, BadModelFile or Unsupported when the target itself cannot be opened.
    """
    target = Path(target)
    vocabulary, weight_bytes = _facts(target)
    choices = [
        _judge(name, path, target, vocabulary, weight_bytes)
        for name, path in _candidates(target)
        if path is None or not (path.exists() and path.samefile(target))
    ]
    return sorted(choices, key=lambda choice: (not choice.usable, choice.path is None))


def _candidates(target: Path) -> list[tuple[str, Path | None]]:
    found: list[tuple[str, Path | None]] = [(model.name, locate(model)) for model in catalogue().values()]
    known = {model.file for model in catalogue().values()}
    seen: set[Path] = set()
    folders = [*search_folders(), target.parent, *sorted((cache_folder() / "hub").glob("*--*"))]
    for folder in folders:
        for path in sorted(folder.glob("*.gguf")) if os.path.isdir(folder) else []:
            if path.name not in known and path.resolve() not in seen:
                seen.add(path.resolve())
                found.append((path.name, path))
    return found


def _facts(path: Path) -> tuple[Vocabulary, int]:
    """Returns the tokens and the bytes of weights."""
    file: GgufFile | SafetensorsFolder = open_safetensors(path) if os.path.isdir(path) else open_gguf(path)
    with closing(file):
        size = sum(tensor.nbytes for tensor in file.tensors.values())
        if isinstance(file, GgufFile):
            return vocabulary_from_gguf(file.metadata), size
        return token_model_from_folder(path).vocabulary, size


def _judge(name: str, path: Path | None, target: Path, vocabulary: Vocabulary, weight_bytes: int) -> DraftChoice:
    if path is None:
        return DraftChoice(name, None, False, f"not on this machine: outpace models pull {name}")
    try:
        tokens, size = _facts(path)
    except OutpaceError as error:
        return DraftChoice(name, path, False, str(error).removeprefix(f"{path}: "))
    comparison = compare(vocabulary, tokens)
    if not comparison.usable:
        return DraftChoice(name, path, False, str(comparison))
    share = size / weight_bytes
    if share >= 1:
        return DraftChoice(name, path, False, f"{comparison}, but not smaller than {target.name}")
    return DraftChoice(name, path, True, f"{comparison}, {share:.0%} of the target's bytes")
