"""Untrained heads for a tiny target: random weights are enough for shapes, states and laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from outpace.heads.config import FEATURE_HEADS, HeadConfig
from outpace.heads.file import matrix_shapes, save_head, vector_shapes
from outpace.heads.fingerprint import fingerprint
from outpace.targets.native import NativeTarget

DRAFT_VOCAB = 64


def config_for(native: NativeTarget, kind: str = "eagle", **changes: object) -> HeadConfig:
    c = native.config
    fields = {
        "kind": kind,
        "taps": (0, c.layers - 1),
        "hidden_size": c.hidden_size,
        "heads": c.heads,
        "kv_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "ffn_size": c.ffn_size,
        "vocab_size": c.vocab_size,
        "draft_vocab": DRAFT_VOCAB,
        "block": 3,
        "norm_epsilon": c.norm_epsilon,
        "rope_theta": c.rope.theta,
        "rope_interleaved": c.rope_interleaved,
        "target": fingerprint(native),
    }
    return HeadConfig(**{**fields, **changes})  # type: ignore[arg-type]


def random_weights(config: HeadConfig, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {name: rng.normal(0, cols**-0.5, (rows, cols)) for name, (rows, cols) in matrix_shapes(config).items()}
    for name, shape in vector_shapes(config).items():
        weights[name] = rng.normal(0 if name == "mask" else 1, 0.1, shape)
    return {name: value.astype(np.float32) for name, value in weights.items()}


def write_head(path: Path, native: NativeTarget, kind: str = "eagle", **changes: object) -> Path:
    config = config_for(native, kind, **changes)
    ids = np.arange(0, config.vocab_size, config.vocab_size // config.draft_vocab)[: config.draft_vocab]
    save_head(path, config, ids, random_weights(config), "Q8_0", {"made": "at random"})
    return path


KINDS = ("eagle", "parallel", *FEATURE_HEADS)
