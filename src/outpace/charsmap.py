"""SentencePiece's precompiled_charsmap, checked: the tokenizers library follows it wherever it leads.

In base64: how many bytes a trie takes, as u32, the trie, and texts that end with a zero byte each. The trie is a
double array of darts-clone. A unit of it has 8 bits of label, a bit that says whether a value follows, and an offset:
the unit's place ^ the offset is the base of its children, which lie at base ^ label, and the place of the value.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

_LONGEST = 5
"""Bytes of the longest key: the library looks up characters, and graphemes of under six bytes."""

_BLOCK = 256
"""Units are added by the block, which holds the children of one base: base ^ label."""


def fault_of(charsmap: object) -> str | None:
    """Returns what is wrong with a precompiled_charsmap, or None when it can be used with any text."""
    try:
        found = base64.b64decode(charsmap, validate=True) if isinstance(charsmap, str) else b""
    except (binascii.Error, ValueError):
        return "is not base64"
    if base64.b64encode(found).decode() != charsmap:
        return "is not base64"
    end = 4 + int.from_bytes(found[:4], "little") // 4 * 4
    if len(found) < end:
        return f"is {len(found)} bytes long, which end before its trie does"
    units, texts = np.frombuffer(found[4:end], "<u4"), found[end:]
    if not len(units) or len(units) % _BLOCK:
        return f"has a trie of {len(units)} units, not of whole blocks of {_BLOCK}"
    try:
        texts.decode()
    except UnicodeDecodeError:
        return "holds texts that are not UTF-8"
    return _fault_of_walks(units, texts)


def _fault_of_walks(units: NDArray[np.uint32], texts: bytes) -> str | None:
    offsets = (units >> 10).astype(np.int64) << ((units & 1 << 9) >> 6)
    labels = (units & (1 << 31 | 0xFF)).astype(np.int64)
    labelled = np.flatnonzero((labels > 0) & (labels < _BLOCK))
    base_of = labelled ^ labels[labelled]
    begins = np.frombuffer(texts + b"\0", np.uint8) & 0xC0 != 0x80  # a text may begin here: no character goes on
    bases = offsets[:1]
    for _ in range(_LONGEST):
        if bases.max(initial=0) >= len(units):
            return "has a trie that leads out of itself"
        known = np.zeros(len(units), bool)
        known[bases] = True
        nodes = labelled[known[base_of]]
        bases = nodes ^ offsets[nodes]
        ends = bases[units[nodes] & 1 << 8 != 0]
        if ends.max(initial=0) >= len(units):
            return "has a trie that leads out of itself"
        values = units[ends] & (1 << 31) - 1
        if values.max(initial=0) > len(texts) or not begins[values].all():
            return "has a trie that leads out of its texts"
    return None
