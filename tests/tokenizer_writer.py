"""Writes tiny GGUF models whose tokenizers tell pre-tokenizers apart: joins of whatever stands side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hard_text import READABLE

from gguf_writer import CONTROL_TOKENS, Tiny, Typed, byte_alphabet, tiny_model

_MERGES = 500
_CONTROL, _USER_DEFINED, _BYTE, _UNKNOWN = 3, 4, 6, 2


def learned(words: Iterable[Sequence[str]], merges: int = _MERGES) -> list[tuple[str, str]]:
    """Returns the joins that byte-pair encoding learns from some words, in order."""
    pieces, found = [list(word) for word in words], []
    for _ in range(merges):
        pairs = Counter(pair for word in pieces for pair in pairwise(word))
        (a, b), _count = max(pairs.items(), key=lambda item: (item[1], item[0]))
        found.append((a, b))
        for word in pieces:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (a, b):
                    word[i : i + 2] = [a + b]
                i += 1
    return found


@cache
def byte_level_keys() -> dict[str, Any]:
    """Returns the keys of a byte-level vocabulary whose joins cross the borders of all words."""
    alphabet = byte_alphabet()
    merges = learned(["".join(alphabet[byte] for byte in line.encode()) for line in READABLE])
    tokens = [*CONTROL_TOKENS, *alphabet, *dict.fromkeys(a + b for a, b in merges)]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_CONTROL] * len(CONTROL_TOKENS) + [1] * (len(tokens) - len(CONTROL_TOKENS)),
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges],
    }


@cache
def sentencepiece_keys(crossing: bool) -> dict[str, Any]:
    """Returns the keys of a vocabulary with scores. crossing: its tokens go on past spaces."""
    lines = [line.replace(" ", "\u2581") for line in READABLE]
    words = lines if crossing else [word for line in lines for word in line.replace("\u2581", "\0\u2581").split("\0")]
    made = list(dict.fromkeys(a + b for a, b in learned(words)))
    special = [
        ("<unk>", _UNKNOWN),
        ("<s>", _CONTROL),
        ("</s>", _CONTROL),
        ("<tool_call>", _USER_DEFINED),
        ("  ", _USER_DEFINED),
    ]
    letters = {char for line in lines for char in line if "\0" < char < "\u0400"} | {"\u2581"}
    if not crossing:  # as in every real one: what a token is made of are tokens
        letters |= {char for token in made for char in token if len(token) > 1}
    letters -= {token for token in made if len(token) == 1}
    kinds = [kind for _, kind in special] + [_BYTE] * 256 + [1] * (len(made) + len(letters))
    tokens = [*(token for token, _ in special), *(f"<0x{byte:02X}>" for byte in range(256)), *made, *sorted(letters)]
    scores = [0.0] * (len(special) + 256) + [-float(rank) for rank in range(len(made) + len(letters))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": Typed("arr", ("f32", scores)),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
    }


SYNTHETIC: dict[str, dict[str, Any]] = {
    **{f"bpe-{pre}": {"tokenizer.ggml.pre": pre} for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe", "tekken")},
    "spm-prefix": {"tokenizer.ggml.add_space_prefix": True},
    "spm-plain": {"tokenizer.ggml.add_space_prefix": False},
    "spm-crossing": {"tokenizer.ggml.add_space_prefix": True},
}
"""What each synthetic tokenizer adds to its vocabulary."""


def synthetic_model(path: Path, name: str, **keys: Any) -> Path:
    """Writes a tiny model with one of SYNTHETIC and returns its path; keyword arguments replace keys."""
    vocabulary = byte_level_keys() if name.startswith("bpe") else sentencepiece_keys(name == "spm-crossing")
    changes = vocabulary | SYNTHETIC[name] | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return tiny_model(path, Tiny(vocab_size=len(vocabulary["tokenizer.ggml.tokens"])), **changes)
