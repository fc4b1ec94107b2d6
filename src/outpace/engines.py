"""Engines as the Python face loads them: a target and its text side, from one reading of the file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from outpace.errors import OutpaceError
from outpace.text import Text
from outpace.types import Target


def load_native(path: Path, threads: int | None, context: int | None, *, clip: bool = False) -> tuple[Target, Text]:
    """Returns the model on the C++ engine. Raises OutpaceError where that was not built, ModelError, UsageError.

    clip: a context beyond what the model was made for is cut to that, instead of refused.
    """
    try:
        from outpace.native import loading
    except ImportError as error:
        raise OutpaceError(
            f"the native engine is not there ({error}): it needs a C++ compiler when outpace is installed; "
            "install one and run pip install --force-reinstall --no-deps outpace"
        ) from None
    with closing(loading.open_weights(path)) as file:
        text = Text.from_weights(file)
        if clip and context is not None:
            context = min(context, file.config.context_length)
        return loading.load_native(file, threads=threads, context=context), text
