"""A few thousand lines of text that tokenisers get wrong, the same in every run."""

# The lists read best as they are.
# ruff: noqa: E501

from __future__ import annotations

import random

READABLE = [
    "Hello, world!", "", " ", "  ", "   leading", "trailing   ", "a b  c   d    e", "tabs\t\tand\ttabs\t", "\n", "\n\n\n",
    "\r\n", "line\r\nline\rline\n", " \n \n  \n", "x\n    y\n\tz", "def f(x):\n    return x ** 2  # squared\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "<html><body class=\"x\">&nbsp;</body></html>", "SELECT * FROM t;",
    "it's I'm you're we've they'll he'd IT'S I'M YOU'RE", "'s 't 're 've 'm 'll 'd ''s", "don’t “quote” — dash…",
    "1234567890", "3.14159 1,000,000 0xDEADBEEF 1e-9", "v1.2.3-rc4", "2²³ ½ ¾ Ⅷ ④ 一二三 ٣٤٥ १२३", "x²+y²=z²",
    "naïve café résumé", "nai\u0308ve cafe\u0301 re\u0301sume\u0301", "Ελληνικά Русский עברית العربية हिन्दी ไทย",
    "你好，世界！这是一个测试。", "日本語のテキストとカタカナ", "한국어 텍스트 각", "𠀀𠀁𠀂 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "👍 👍🏽 👨‍👩‍👧‍👦 🇨🇭🇯🇵 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a\u200bb\u200cc\u200dd\ufeffe", "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g",
    "Z̸̢̛a̵͓͝l̴̰͗g̷̱̾o̶̞͌", "\x00\x01\x02\x07\x1b[31m\x7f", "\x04\x06\x13\x14\x16\x1d", "�\ufffe\uffff", "\U000f0000\U0010ffff",
    "<|im_start|>user\nhi<|im_end|>", "<|endoftext|>", "<tool_call>{}</tool_call>", "</s><s>[INST]", "<|im_start", "[PAD151665]",
    "https://example.org/path?q=1&r=%20#frag", "user.name+tag@example.co.uk", "ALLCAPS camelCase snake_case kebab-case",
    "ſ'ſ K Å ß ẞ İ ı ǆ ﬁ", "!!!???...,,,;;;:::", "(((([[[[{{{{<<<<", "$€£¥₿ %‰ ©®™ §¶ ←→ ∑∫√∞ ≤≥≠", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]  # fmt: skip

_PIECES = [
    *READABLE, "the", " the", "The", "ing", "tion", " ", "  ", "    ", "\n", "\n\n", "\t", "\r\n", "'s", "'LL", "0", "42", "007", ".", ",",
    "; ", "->", "=>", "==", "//", "/*", "*/", "#", "_", "__", "é", "e\u0301", "ß", "我", "の", "한", "🙂", "‍", "\ufe0f", "\x00", "\x1b",
    "\u00a0", "\u2028", "²", "٣", "Ⅷ", "𝟘", "ा", "̈", "א", "ב", "\u200f", "𓀀", "\U00020000",
]  # fmt: skip

_RANGES = [
    (0x20, 0x7F), (0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0xE80), (0x1100, 0x1200),
    (0x2000, 0x2C00), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xFE00, 0xFFFE),
    (0x10000, 0x10200), (0x1D400, 0x1D800), (0x1F300, 0x1FB00), (0x20000, 0x20100), (0xE0000, 0xE0080),
]  # fmt: skip


def hard_lines(count: int = 3000, seed: int = 20250101) -> list[str]:
    """Returns the readable cases, then random mixtures of hard pieces, of scripts, and of both."""
    rng = random.Random(seed)
    lines = list(READABLE)
    while len(lines) < count:
        style = rng.randrange(3)
        if style == 0:
            line = "".join(rng.choice(_PIECES) for _ in range(rng.randint(1, 12)))
        elif style == 1:
            low, high = rng.choice(_RANGES)
            line = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 40)))
        else:
            line = "".join(
                rng.choice(_PIECES) if rng.random() < 0.5 else chr(rng.randrange(*rng.choice(_RANGES)))
                for _ in range(rng.randint(1, 20))
            )
        lines.append(line)
    return lines
