"""Prompts to write training text from: JSON lines with a `prompt`, or the first of its `turns`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from outpace.errors import UsageError


def read_prompts(path: Path) -> list[str]:
    """Returns the prompts of a file. Raises UsageError naming the line that holds none."""
    prompts: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # editors on Windows put a mark first
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.start}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompts.append(_prompt(path, number, line))
    if not prompts:
        raise UsageError(f"{path}: holds no prompt")
    return prompts


def _prompt(path: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
        found = record["prompt"] if "prompt" in record else record["turns"][0]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        found = None
    if not isinstance(found, str) or not found.strip():
        raise UsageError(f'{path}, line {number}: a prompt is {{"prompt": "..."}} or {{"turns": ["...", ...]}}')
    try:
        found.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path}, line {number}: holds half of a surrogate pair, which is no text") from None
    return found


def without(prompts: Iterable[str], excluded: Iterable[str]) -> list[str | None]:
    """Returns the prompts, with None for those that came before or are excluded, white space and case aside."""
    seen = {_key(prompt) for prompt in excluded}
    kept: list[str | None] = []
    for prompt in prompts:
        key = _key(prompt)
        kept.append(None if key in seen else prompt)
        seen.add(key)
    return kept


def _key(prompt: str) -> str:
    return " ".join(prompt.split()).lower()
