"""Formats and families: every one near the reference on tiny models, and a real Gemma 3 across its window."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from acceptance import Outcome
from first_light import bits
from first_light.common import SEED, load, per_task
from first_light.equality import alone, compare, in_one_batch
from first_light.quality import divergence

from outpace.native.gguf import open_gguf
from outpace.native.loading import load_native
from outpace.native.reference import ReferenceModel
from outpace.types import Draft, Prompt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gguf_writer import ARCHITECTURES, SUPPORTED, Tiny, tiny_model

GEMMA = "gemma3-270m"
WINDOW = 512
_DENSE = ("F32", "F16", "BF16")


def error_of(shape: Tiny, folder: Path) -> float:
    """Returns the median over rows of the largest error of a logit, over the largest logit."""
    path = tiny_model(folder / "m.gguf", shape)
    ids = tuple(np.random.default_rng(1).integers(0, shape.vocab_size, 60).tolist())
    exact = ReferenceModel(open_gguf(path)).logits(ids)
    target = load_native(path, threads=2)
    session, _ = target.open(Prompt(ids[:1]))
    [scores] = target.score_many([(session, Draft.chain(ids[1:]))])
    return float(np.median(np.abs(scores.logits - exact).max(axis=1)) / np.abs(exact).max())


def tiny() -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in ARCHITECTURES.items():
            error = error_of(shape, Path(folder))
            yield Outcome(f"{name}, F32", f"{error:.1e}", "at most 5e-3 of the largest logit", error <= 5e-3)
        for format in SUPPORTED:
            shape = replace(ARCHITECTURES["llama"], hidden=256, ffn=512, formats=(format,), embedding=format)
            error, bound = error_of(shape, Path(folder)), 5e-3 if format in _DENSE else 5e-2
            yield Outcome(
                f"llama, {format}", f"{error:.1e}", f"at most {bound:.0e} of the largest logit", error <= bound
            )


def texts() -> Iterator[Outcome]:
    """Yields whether prompts that begin on either side of the window answer alike; they are taken as they are."""
    questions = [prompt for _, prompt in per_task(1)]
    model, single = load(GEMMA), load(GEMMA, threads=1)
    laws: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0.0, "max_tokens": 32, "raw": True},
        "temperature 1": {"temperature": 1.0, "seed": SEED, "max_tokens": 32, "raw": True},
    }
    for law, options in laws.items():
        others = {
            f"{law}, ngram 3": alone(model, drafter="ngram", draft_length=3, **options),
            f"{law}, default": alone(model, **options),
            f"{law}, 1 thread, ngram 5": alone(single, drafter="ngram", draft_length=5, **options),
            f"{law}, in a batch, ngram 3": in_one_batch(model, drafter="ngram", draft_length=3, **options),
        }
        yield from compare(questions, alone(model, drafter="none", **options), others)


LINES = [
    ("tiny", "every family and format: logits near an f32 reference on the same weights", tiny),
    (
        "bits",
        "Gemma 3: a row's logits depend on its path alone, past its window",
        lambda: bits.measure(GEMMA, WINDOW + 150),
    ),
    ("texts", "Gemma 3: the text is the same with every draft, thread count and batch", texts),
    ("kl", "Gemma 3: KL from an f32 reference on the same weights", lambda: divergence(GEMMA)),
]
