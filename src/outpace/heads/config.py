"""What a draft head is, in numbers; the part of its file that is not weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from outpace.errors import BadModelFile

FEATURE_HEADS = ("medusa", "blockwise")
"""Kinds that guess each position from the last hidden state alone: no layer, no cache."""

KINDS = ("eagle", "parallel", *FEATURE_HEADS)

_COUNTS: Mapping[str, int] = {
    "hidden_size": 1 << 17, "heads": 1 << 10, "kv_heads": 1 << 10, "head_dim": 512, "ffn_size": 1 << 20,
    "vocab_size": 1 << 22, "draft_vocab": 1 << 22, "block": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """A head of one of the KINDS, for a target of `hidden_size` and `vocab_size`.

    taps: the target's layers whose outputs it reads, the last layer last. draft_vocab: tokens that it can propose.
    block: tokens after the last committed one that it was trained to propose. target: the target's fingerprint.
    """

    kind: str
    taps: tuple[int, ...]
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    draft_vocab: int
    block: int
    norm_epsilon: float
    rope_theta: float
    rope_interleaved: bool
    target: str

    @property
    def query_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    def to_json(self) -> str:
        """Returns the config as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str, label: str) -> HeadConfig:
        """Returns the config that a file holds. Raises BadModelFile, with the file's `label`, for anything else."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        names = [field.name for field in fields(HeadConfig)]
        if not isinstance(record, dict) or sorted(record) != sorted(names):
            raise BadModelFile(f"{label}: its config is not an object with {', '.join(names)}")
        _check(record, label)
        return HeadConfig(**{**record, "taps": tuple(record["taps"])})


def _check(record: Mapping[str, Any], label: str) -> None:
    wrong: list[str] = []
    if record["kind"] not in KINDS:
        wrong.append(f"kind must be one of {', '.join(KINDS)}, got {str(record['kind'])[:40]!r}")
    wrong += [
        f"{name} must be in [1, {most}], got {str(record[name])[:40]}"
        for name, most in _COUNTS.items()
        if type(record[name]) is not int or not 1 <= record[name] <= most
    ]
    taps = record["taps"]
    if (
        not isinstance(taps, list)
        or not 1 <= len(taps) <= 8
        or not all(type(t) is int and 0 <= t < 1024 for t in taps)
    ):
        wrong.append(f"taps must be one to eight layers, got {str(taps)[:40]}")
    for name in ("norm_epsilon", "rope_theta"):
        if not isinstance(record[name], (int, float)) or not 0 < record[name] < 1e12:
            wrong.append(f"{name} must be a positive number, got {str(record[name])[:40]}")
    if type(record["rope_interleaved"]) is not bool:
        wrong.append("rope_interleaved must be true or false")
    if not isinstance(record["target"], str) or len(record["target"]) != 64:
        wrong.append("target must be a fingerprint of 64 hexadecimal digits")
    if not wrong and (record["draft_vocab"] > record["vocab_size"] or record["heads"] % record["kv_heads"]):
        wrong.append("draft_vocab must not exceed vocab_size, and heads must be a multiple of kv_heads")
    if wrong:
        raise BadModelFile(f"{label}: {'; '.join(wrong)}")
