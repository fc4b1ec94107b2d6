"""Every error that outpace raises on purpose.

OutpaceError
├── UsageError            what the caller asked for cannot be done; the message names value, range and remedy
│   └── ContextOverflow   the prompt does not fit in the context
├── ModelError            a model cannot be used
│   ├── BadModelFile      truncated, corrupt or hostile
│   ├── Unsupported       well formed, but an architecture, tensor type or tokenizer that we do not run
│   ├── TooLarge          would not fit in memory; refused before it is loaded
│   └── VocabularyMismatch  a draft that does not share the target's tokens
├── ModelNotFound         neither a file, a folder, a catalogue name nor reachable on the hub
└── MissingExtra          an optional part is not installed; the message holds the command that installs it
"""

from __future__ import annotations


def _shown(char: str) -> str:
    """Returns a character as it may reach a terminal: a line break, a control or half of a pair is escaped."""
    return char if char.isprintable() else char.encode("unicode_escape").decode()


class OutpaceError(Exception):
    """The root of all of them; the text is one line for the user, whatever the names and values in it hold."""

    def __init__(self, text: str = "") -> None:
        super().__init__("".join(map(_shown, text)))


class UsageError(OutpaceError, ValueError):
    """The caller's mistake."""


class ContextOverflow(UsageError):
    """The prompt leaves no room in the context."""


class ModelError(OutpaceError):
    """A model that cannot be used."""


class BadModelFile(ModelError):
    """A file that contradicts itself or its format."""


class Unsupported(ModelError):
    """A well-formed model that this build does not run; says what would work."""


class TooLarge(ModelError):
    """A model that would not fit in memory."""


class VocabularyMismatch(ModelError):
    """A draft whose tokens are not the target's."""


class ModelNotFound(OutpaceError):
    """No such model."""


class MissingExtra(OutpaceError):
    """An optional dependency is absent."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'outpace[{extra}]'")
