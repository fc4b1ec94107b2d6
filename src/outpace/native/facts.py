"""What a file states about a model, read with types and ranges checked, whether it is GGUF or a config.json."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from outpace.errors import BadModelFile, Unsupported
from outpace.native.metadata import brief

LIMITS: Mapping[str, int] = {
    "layers": 1 << 10, "hidden_size": 1 << 17, "heads": 1 << 10, "kv_heads": 1 << 10, "head_dim": 1 << 10,
    "ffn_size": 1 << 20, "vocab_size": 1 << 22, "context_length": 1 << 26, "experts": 1 << 10,
}  # fmt: skip


class Facts:
    """Values under GGUF's names less the architecture ("block_count"); `label` turns a name into the file's own."""

    def __init__(self, values: Mapping[str, Any], label: Callable[[str], str]) -> None:
        self.values = values
        self.label = label

    def get(self, name: str) -> Any:
        """Returns a value as it stands, or None."""
        return self.values.get(name)

    def integer(self, name: str, field: str, default: int | None = None) -> int:
        """Returns a count in [1, the limit of `field`]; a list of equal counts, one a layer, is that count."""
        value = self.get(name)
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise Unsupported(f"{self.label(name)} differs from layer to layer, which is not supported")
            value = int(value[0])
        if value is None and default is not None:
            value = default
        return checked_count(value, self.label(name), field)

    def number(self, name: str, default: float | None = None) -> float:
        """Returns a positive number."""
        value = self.get(name)
        return checked_positive(default if value is None else value, self.label(name))

    def text(self, name: str) -> str | None:
        """Returns a text, or None where nothing is asked for."""
        value = self.get(name)
        if is_off(value):
            return None
        if not isinstance(value, str):
            raise BadModelFile(f"{self.label(name)} must be a text, got {brief(value)}")
        return value

    def flags(self, name: str, count: int) -> tuple[bool, ...] | None:
        """Returns `count` booleans, or None when nothing is stated."""
        value = self.get(name)
        if value is None:
            return None
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        known = isinstance(listed, list) and all(isinstance(flag, int) and flag in (0, 1) for flag in listed)
        if not known or len(listed) != count:
            raise BadModelFile(f"{self.label(name)} must be {count} booleans, one a layer, got {brief(value)}")
        return tuple(map(bool, listed))


def checked_count(value: object, name: str, field: str) -> int:
    if type(value) is not int or not 1 <= value <= LIMITS[field]:
        raise BadModelFile(f"{name} must be an integer in [1, {LIMITS[field]}], got {brief(value)}")
    return value


def checked_positive(value: object, name: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise BadModelFile(f"{name} must be a positive number, got {brief(value)}")
    return float(value)


def is_off(value: object) -> bool:
    """Whether a value asks for nothing, or there is none."""
    return value is None or (isinstance(value, (int, float, str)) and value in (0, "", "none"))
