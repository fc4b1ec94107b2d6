"""Speculative decoding that gives exactly the target model's text, faster."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outpace.api import load
    from outpace.conversation import Chat
    from outpace.errors import (
        BadModelFile,
        ContextOverflow,
        MissingExtra,
        ModelError,
        ModelNotFound,
        OutpaceError,
        TooLarge,
        Unsupported,
        UsageError,
        VocabularyMismatch,
    )
    from outpace.generation import Generation
    from outpace.grammar import JsonSchema, Regex
    from outpace.model import Model
    from outpace.result import Chunk, Result
    from outpace.rules import RULES, coupled_verify, rejection_verify
    from outpace.sampling import SamplingParams

_HOMES = {
    "outpace.api": ("load",),
    "outpace.conversation": ("Chat",),
    "outpace.errors": (
        "BadModelFile",
        "ContextOverflow",
        "MissingExtra",
        "ModelError",
        "ModelNotFound",
        "OutpaceError",
        "TooLarge",
        "Unsupported",
        "UsageError",
        "VocabularyMismatch",
    ),
    "outpace.generation": ("Generation",),
    "outpace.grammar": ("JsonSchema", "Regex"),
    "outpace.model": ("Model",),
    "outpace.result": ("Chunk", "Result"),
    "outpace.rules": ("RULES", "coupled_verify", "rejection_verify"),
    "outpace.sampling": ("SamplingParams",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "RULES",
    "BadModelFile",
    "Chat",
    "Chunk",
    "ContextOverflow",
    "Generation",
    "JsonSchema",
    "MissingExtra",
    "Model",
    "ModelError",
    "ModelNotFound",
    "OutpaceError",
    "Regex",
    "Result",
    "SamplingParams",
    "TooLarge",
    "Unsupported",
    "UsageError",
    "VocabularyMismatch",
    "coupled_verify",
    "load",
    "rejection_verify",
]


def __getattr__(name: str) -> Any:
    # Each name is imported when it is first used, so that `import outpace` costs nothing.
    if name not in _HOME:
        raise AttributeError(f"module 'outpace' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
