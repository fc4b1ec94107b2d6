"""The small text files beside a model's weights: config.json and its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outpace.errors import BadModelFile, ModelNotFound
from outpace.native.rawfile import RawFile

MAX_BYTES = 64 << 20
"""The largest tokenizer.json in use are about 35 million bytes."""


def read_text(path: Path, limit: int = MAX_BYTES) -> str | None:
    """Returns a file's text, or None when there is no such file. Raises BadModelFile."""
    try:
        with RawFile(path) as raw:
            if raw.size > limit:
                raise BadModelFile(f"{path}: {raw.size} bytes long, at most {limit} make sense")
            return raw.read(0, raw.size).tobytes().decode()
    except ModelNotFound:
        return None
    except UnicodeDecodeError:
        raise BadModelFile(f"{path}: is not UTF-8") from None


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """Returns the object that a JSON file holds; names that appear twice are refused. Raises BadModelFile."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadModelFile(f"{path}: not valid JSON: {one_line(error)}") from None
    if not isinstance(value, dict):
        raise BadModelFile(f"{path}: not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:80]!r} appears twice")
    return found


def read_json(path: Path, limit: int = MAX_BYTES) -> dict[str, Any] | None:
    """Returns the object that a JSON file holds, or None when there is no such file. Raises BadModelFile."""
    text = read_text(path, limit)
    return None if text is None else parse_json(text, path)


def one_line(error: BaseException) -> str:
    """Returns an error's text on one line of bounded length."""
    return " ".join(str(error).split())[:200] or type(error).__name__
