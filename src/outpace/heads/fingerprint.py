"""Whether a head was made for the target at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from outpace.types import Array

_PROBES = 256


@runtime_checkable
class Embedding(Protocol):
    """A target whose embeddings can be had."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden_layers(self) -> int: ...

    def embed(self, ids: Sequence[int]) -> Array:
        """Returns the embeddings [N, H] f32."""
        ...


def fingerprint(target: Embedding) -> str:
    """Returns a hash of the target's vocabulary size, layers, and of the embeddings of 256 tokens spread over it.

    Embeddings are the file's own values whatever runs them, so it does not change with engine or processor; a model
    of the same shape that was trained or quantised otherwise has others.
    """
    ids = [i * target.vocab_size // _PROBES for i in range(_PROBES)]
    rows = np.ascontiguousarray(target.embed(ids), np.dtype("<f4"))
    digest = hashlib.sha256(f"{target.vocab_size} {target.hidden_layers} {rows.shape[1]} ".encode())
    digest.update(rows.tobytes())
    return digest.hexdigest()
