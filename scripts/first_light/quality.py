"""How far quantised activations take the engine from f32, beside llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kl
from acceptance import NotRun, Outcome

from first_light.common import DRAFT, EMBEDDED, file_of


def divergence(name: str) -> Iterator[Outcome]:
    file_of(name)
    record = kl.measure(name, tokens=4000)
    if "ratio" not in record:
        raise NotRun("llama.cpp's column needs the extra 'peers': pip install 'outpace[peers]'")
    yield Outcome(f"{name}, mean KL over {record['tokens']} tokens",
                  f"{record['outpace']:.3e}, llama.cpp {record['llama.cpp']:.3e}, ratio {record['ratio']:.2f}",
                  "at most 1.05 times llama.cpp's", float(record["ratio"]) <= 1.05)  # fmt: skip


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("kl", "embedded model: KL from an f32 reference on the same weights", lambda: divergence(EMBEDDED)),
    ("pair-kl", "0.5B: the same", lambda: divergence(DRAFT)),
]
