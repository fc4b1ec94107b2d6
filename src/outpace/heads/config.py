"""What a draft head is, in numbers; the part of its file that is not weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from outpace.errors import BadModelFile
from outpace.native.metadata import brief, quoted
from outpace.native.textfile import parse_json

FEATURE_HEADS = ("medusa", "blockwise")
"""Kinds that guess each position from the last hidden state alone: no layer, no cache."""

KINDS = ("eagle", "parallel", *FEATURE_HEADS)

_COUNTS: Mapping[str, int] = {
    "hidden_size": 1 << 17, "heads": 1 << 10, "kv_heads": 1 << 10, "head_dim": 512, "ffn_size": 1 << 20,
    "vocab_size": 1 << 22, "draft_vocab": 1 << 22, "block": 16,
}  # fmt: skip
_NUMBERS = {"norm_epsilon": (1e-30, 0.1), "rope_theta": (1.001, 1e11)}
_LAYERS = 1024
_FINGERPRINT = re.compile("[0-9a-f]{64}")


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
        record = parse_json(text, f"{label}: its config")
        names = [field.name for field in fields(HeadConfig)]
        lacking, unknown = sorted(set(names) - set(record)), sorted(set(record) - set(names))
        if lacking or unknown:
            what = f"lacks {lacking[0]}" if lacking else f"has the unknown {quoted(unknown[0])}"
            raise BadModelFile(f"{label}: its config {what}; it must have {', '.join(names)}")
        _check(record, label)
        return HeadConfig(**{**record, "taps": tuple(record["taps"])})


def _check(record: Mapping[str, Any], label: str) -> None:
    wrong: list[str] = []
    if record["kind"] not in KINDS:
        wrong.append(f"kind must be one of {', '.join(KINDS)}, got {brief(record['kind'])}")
    wrong += [
        f"{name} must be in [1, {most}], got {brief(record[name])}"
        for name, most in _COUNTS.items()
        if type(record[name]) is not int or not 1 <= record[name] <= most
    ]
    taps = record["taps"]
    if (
        not isinstance(taps, list)
        or not 1 <= len(taps) <= 8
        or not all(type(t) is int and 0 <= t < _LAYERS for t in taps)
    ):
        wrong.append(f"taps must be one to eight layers in [0, {_LAYERS}), got {brief(taps)}")
    for name, (least, most) in _NUMBERS.items():
        if type(record[name]) not in (int, float) or not least <= record[name] <= most:
            wrong.append(f"{name} must be in [{least:g}, {most:g}], got {brief(record[name])}")
    if type(record["rope_interleaved"]) is not bool:
        wrong.append(f"rope_interleaved must be true or false, got {brief(record['rope_interleaved'])}")
    if not isinstance(record["target"], str) or not _FINGERPRINT.fullmatch(record["target"]):
        wrong.append(f"target must be a fingerprint of 64 hexadecimal digits, got {brief(record['target'])}")
    if not wrong and record["draft_vocab"] > record["vocab_size"]:
        wrong.append(f"draft_vocab must be in [1, {record['vocab_size']}], got {record['draft_vocab']}")
    if not wrong and record["heads"] % record["kv_heads"]:
        wrong.append(f"heads must be a multiple of kv_heads, got {record['heads']} and {record['kv_heads']}")
    if not wrong and record["head_dim"] % 16:
        wrong.append(f"head_dim must be a multiple of 16, got {record['head_dim']}")
    if wrong:
        raise BadModelFile(f"{label}: {'; '.join(wrong)}")
