"""The small text files beside a model's weights: config.json and its kind."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from outpace.errors import BadModelFile, ModelNotFound
from outpace.native.metadata import quoted
from outpace.native.rawfile import RawFile

MAX_BYTES = 64 << 20
"""The largest tokenizer.json in use are about 35 million bytes."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


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


def parse_json(text: str, where: Path | str) -> dict[str, Any]:
    """Returns the object that a JSON text holds. Raises BadModelFile, naming `where` it stands.

    Refused are names that appear twice, and halves of surrogate pairs, which JSON can write and no text can hold.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise BadModelFile(f"{where}: not valid JSON: {error}") from None
    except RecursionError:
        raise BadModelFile(f"{where}: its JSON is nested too deeply") from None
    except _AppearsTwice as error:
        raise BadModelFile(f"{where}: not valid JSON: {quoted(str(error))} appears twice") from None
    except ValueError:  # what Python itself refuses of valid JSON
        raise BadModelFile(f"{where}: holds a number of over {sys.get_int_max_str_digits()} digits") from None
    if not isinstance(value, dict):
        raise BadModelFile(f"{where}: not a JSON object")
    if _SURROGATE.search(text) and _HALF.search(json.dumps(value, ensure_ascii=False)):
        raise BadModelFile(f"{where}: holds half of a surrogate pair, which is no text")
    return value


class _AppearsTwice(ValueError):
    """A name that an object has twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _AppearsTwice(twice)
    return found


def read_json(path: Path, limit: int = MAX_BYTES) -> dict[str, Any] | None:
    """Returns the object that a JSON file holds, or None when there is no such file. Raises BadModelFile."""
    text = read_text(path, limit)
    return None if text is None else parse_json(text, path)


def one_line(error: BaseException) -> str:
    """Returns an error's text on one line of bounded length."""
    return " ".join(str(error).split())[:200] or type(error).__name__
