"""How sure a draft model is of its likeliest token, and what it would say instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from array_api_compat import array_namespace

from outpace.types import Array

try:
    from outpace import _native
except ImportError:  # built without a C++ compiler
    _native = None  # type: ignore[assignment]

OUT = -1e30
"""A logit that loses to any other, and still wins where a constraint allows nothing else."""


def largest_probability(row: Array) -> float:
    """Returns the probability of the largest of a row's [V] logits."""
    if _native is not None and isinstance(row, np.ndarray) and row.dtype == np.float32:
        [(_, probability)] = _native.top_tokens(np.ascontiguousarray(row), 1)
        return probability
    xp = array_namespace(row)
    return 1.0 / float(xp.sum(xp.exp(row - xp.max(row))))


@contextmanager
def without(row: Array, token: int) -> Iterator[Array]:
    """Gives the logits [V] with `token` out. The row is as it was afterwards."""
    own = isinstance(row, np.ndarray) and row.flags.writeable  # a copy of a long row takes longer than a draw from it
    rest = row if own else array_namespace(row).asarray(row, copy=True)
    logit = rest[token].item()
    rest[token] = OUT
    try:
        yield rest
    finally:
        rest[token] = logit
