"""Models in several files: what is read, and what is said when they do not belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from gguf_writer import Tiny, Typed, tiny_metadata, tiny_model, tiny_tensors, write_gguf
from outpace.errors import BadModelFile, ModelNotFound
from outpace.native.gguf import open_gguf

SHAPE = Tiny(tied=False)


def part_path(folder: Path, part: int, count: int = 3) -> Path:
    return folder / f"m-{part:05}-of-{count:05}.gguf"


def write_parts(folder: Path, count: int = 3, **changes: Any) -> Path:
    """Writes a model in parts and returns the first one's path."""
    tensors = list(tiny_tensors(SHAPE).items())
    for part in range(1, count + 1):
        keys = {"split.no": Typed("u16", part - 1), "split.count": Typed("u16", count)}
        keys["split.tensors.count"] = Typed("i32", len(tensors))
        keys |= tiny_metadata(SHAPE) if part == 1 else {}
        write_gguf(part_path(folder, part, count), keys | changes, dict(tensors[part - 1 :: count]))
    return part_path(folder, 1, count)


def test_parts_are_one_model(tmp_path: Path) -> None:
    whole = open_gguf(tiny_model(tmp_path / "whole.gguf", SHAPE))
    write_parts(tmp_path)
    for part in (1, 3):
        found = open_gguf(part_path(tmp_path, part))
        assert found.config == whole.config
        assert found.tensors.keys() == whole.tensors.keys()
        for name, info in whole.tensors.items():
            assert np.array_equal(found.read(name, 0, info.rows), whole.read(name, 0, info.rows))
        found.close()


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    path = write_parts(tmp_path)
    second = part_path(tmp_path, 2)
    second.unlink()
    with refused(ModelNotFound, f"{second}: missing: it is part 2 of 3 of this model"):
        open_gguf(path)


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path)
    renamed = part_path(tmp_path, 1).rename(tmp_path / "model.gguf")
    line = f"{renamed}: part 1 of 3 of a model, but not named ...-00001-of-00003.gguf, so the others cannot be found"
    with refused(BadModelFile, line):
        open_gguf(renamed)
    other = part_path(tmp_path, 2).rename(part_path(tmp_path, 1))
    with refused(BadModelFile, f"{other}: part 2 of 3 of a model by its keys, 00001 of 00003 by its name"):
        open_gguf(other)


def test_a_wrong_count_is_refused(tmp_path: Path) -> None:
    path = write_parts(tmp_path, **{"split.count": Typed("u16", 2)})
    with refused(BadModelFile, f"{path}: part 1 of 2 of a model by its keys, 00001 of 00003 by its name"):
        open_gguf(path)
    path = write_parts(tmp_path, **{"split.count": 1000})
    with refused(BadModelFile, f"{path}: split.count must be in [1, 512], got 1000"):
        open_gguf(path)
    path = write_parts(tmp_path, **{"split.count": "three"})
    with refused(BadModelFile, f"{path}: split.count must be a count, got 'three'"):
        open_gguf(path)


def test_a_mixed_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    path = write_parts(tmp_path)
    second = part_path(tmp_path, 2)
    write_parts(tmp_path / "other", **{"split.tensors.count": Typed("i32", 7)})
    part_path(tmp_path / "other", 2).replace(second)
    with refused(BadModelFile, f"{second}: split.tensors.count is 7, 21 in the first part"):
        open_gguf(path)


def test_parts_that_repeat_or_lack_tensors_are_refused(tmp_path: Path) -> None:
    path = write_parts(tmp_path)
    keys = {"split.no": Typed("u16", 1), "split.count": Typed("u16", 3)}
    tensors = tiny_tensors(SHAPE)
    write_gguf(part_path(tmp_path, 2), keys, {"output_norm.weight": tensors["output_norm.weight"]})
    line = f"{path}: its parts hold 15 tensors, split.tensors.count says 21: parts of different models?"
    with refused(BadModelFile, line):
        open_gguf(path)
    write_gguf(part_path(tmp_path, 2), keys, {"token_embd.weight": tensors["token_embd.weight"]})
    second = part_path(tmp_path, 2)
    with refused(BadModelFile, f"{second}: the tensor 'token_embd.weight' is in another file too"):
        open_gguf(path)
    with pytest.raises(BadModelFile):
        open_gguf(second)
