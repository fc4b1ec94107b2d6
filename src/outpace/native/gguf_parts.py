"""A GGUF model in several files, NAME-00001-of-00003.gguf and so on: which ones, and that they belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from outpace.errors import BadModelFile, ModelNotFound
from outpace.native.metadata import Value, brief

MAX_PARTS = 512
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


def part_paths(path: Path, metadata: Mapping[str, Value]) -> list[Path]:
    """Returns the paths of all parts, given any one of them and its keys; `path` alone where the model is whole.

    Raises BadModelFile when name and keys disagree, ModelNotFound naming the first part that is missing.
    """
    count = _integer(metadata, _COUNT, 1)
    found = _NAME.fullmatch(path.name)
    if count == 1 and (found is None or int(found[3]) == 1):
        return [path]
    if not 1 <= count <= MAX_PARTS:
        raise BadModelFile(f"{_COUNT} must be in [1, {MAX_PARTS}], got {count}")
    number = _integer(metadata, _NUMBER, 0) + 1
    if found is None:
        raise BadModelFile(
            f"part {number} of {count} of a model, but not named ...-{number:05}-of-{count:05}.gguf, "
            "so the others cannot be found"
        )
    if (int(found[2]), int(found[3])) != (number, count):
        raise BadModelFile(f"part {number} of {count} of a model by its keys, {found[2]} of {found[3]} by its name")
    paths = [path.with_name(f"{found[1]}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
    missing = next((i for i, part in enumerate(paths) if not part.exists()), None)
    if missing is not None:
        raise ModelNotFound(f"{paths[missing]}: missing: it is part {missing + 1} of {count} of this model")
    return paths


def check_part(path: Path, metadata: Mapping[str, Value], first: Mapping[str, Value]) -> None:
    """Raises BadModelFile unless a part's keys say of it what its name says, and agree with the first part's."""
    found = _NAME.fullmatch(path.name)
    claimed = _integer(metadata, _NUMBER, 0) + 1, _integer(metadata, _COUNT, 1)
    if found is None or claimed != (int(found[2]), int(found[3])):
        raise BadModelFile(f"{path}: part {claimed[0]} of {claimed[1]} by its keys, not what its name says")
    for key in (_TENSORS, "general.architecture"):
        here, there = brief(metadata.get(key)), brief(first.get(key))
        if key in metadata and here != there:
            raise BadModelFile(f"{path}: {key} is {here}, {there} in the first part")


def check_total(tensors: int, first: Mapping[str, Value]) -> None:
    """Raises BadModelFile unless all parts together hold as many tensors as the first part says."""
    total = _integer(first, _TENSORS, tensors)
    if tensors != total:
        raise BadModelFile(f"its parts hold {tensors} tensors, {_TENSORS} says {total}: parts of different models?")


def _integer(metadata: Mapping[str, Value], key: str, default: int) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or value < 0:
        raise BadModelFile(f"{key} must be a count, got {brief(value)}")
    return value
