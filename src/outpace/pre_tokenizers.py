"""How byte-level BPE cuts a text into words before it merges: the patterns that are known, by GGUF's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_QWEN2_JSON = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _LLAMA3_JSON = (pattern.replace(r"|\p{N}|", r"|\p{N}{1,3}|") for pattern in (_QWEN2, _QWEN2_JSON))
SPELLED = {_QWEN2: _QWEN2_JSON, _LLAMA3: _LLAMA3_JSON}
"""Patterns as their publishers spell them in tokenizer.json."""

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is cut into words before byte-level BPE: by patterns, each applied to the last one's pieces.

    whole_words: a word that is a token is that token, whatever the merges say. add_bos: unless the file says not to.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


_LLAMA3_WORDS = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "qwen2": PreTokenizer((_QWEN2,)),
    "llama-bpe": _LLAMA3_WORDS,
    "llama3": _LLAMA3_WORDS,
    "llama-v3": _LLAMA3_WORDS,
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
}
"""By GGUF's name."""

JSON_PATTERNS = frozenset((_GPT2, _TEKKEN, r"\p{N}", r"\p{N}{1,3}", r"[0-9]", r"[0-9][0-9][0-9]", *SPELLED.values()))
"""Patterns that a tokenizer.json may use: a hostile one could take the time of many texts for one."""
