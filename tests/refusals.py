"""What is refused is refused in one line, which tests know whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind: type[Exception], line: str) -> Iterator[None]:
    """The block raises an error of this kind that says exactly this."""
    with pytest.raises(kind) as refusal:
        yield
    assert str(refusal.value) == line
    assert "\n" not in line
