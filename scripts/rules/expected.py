"""Expected tokens a step of the real pair under three rules, from the laws p and q along the target's own samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from acceptance import Outcome
from first_light.common import DRAFT, SEED, TARGET, load, per_task

from outpace.bench.laws import along

TOKENS = 48
LENGTHS = (1, 5)
LEAST = {1: 0.93, 5: 0.87}
ANCHORS = "anchors 0.757 and 0.722"


def expected() -> Iterator[Outcome]:
    """Pooled over every place of every text where a chain of the length has its laws; rules and draws integrated out.

    What is sampled is the contexts alone: two prompts a task and two of code, each with a text that the target drew.
    At each place the expectation over drafts is that of theory/chains.py: only the tokens between a chain's laws are
    the recorded ones.
    """
    model = load(TARGET, DRAFT)
    sums = {length: np.zeros(3) for length in LENGTHS}
    counts, below_bound, worse_blocks = dict.fromkeys(LENGTHS, 0), 0, 0
    for number, (_, prompt) in enumerate([*per_task(2), *per_task(2, "humaneval_prompts.jsonl")]):
        text = along(model, prompt, seed=SEED + number, max_tokens=TOKENS)
        bounds = [beta / (2 - beta) for beta in text.overlap]  # (1 - TV) / (1 + TV)
        below_bound += sum(c < bound - 1e-9 for c, bound in zip(text.coupled, bounds, strict=True))
        for length in LENGTHS:
            for start in range(len(text) - length + 1):
                one = text.accepted(start, length)
                worse_blocks += one.block < one.rejection - 1e-9
                sums[length] += (one.rejection, one.block, one.coupled)
                counts[length] += 1
    for length in LENGTHS:
        rejection, block, coupled = map(float, sums[length] / counts[length])
        beside = f", {ANCHORS}" if length == 1 else ""
        yield Outcome(f"draft length {length}: accepted under rejection, block, coupled",
                      f"{rejection:.3f}, {block:.3f}, {coupled:.3f}", f"reported{beside}", True,
                      f"{counts[length]} places")  # fmt: skip
        yield Outcome(f"draft length {length}: tokens a step, coupled over rejection",
                      f"{1 + coupled:.3f} / {1 + rejection:.3f} = {(1 + coupled) / (1 + rejection):.3f}",
                      f"at least {LEAST[length]}", (1 + coupled) / (1 + rejection) >= LEAST[length])  # fmt: skip
        yield Outcome(f"draft length {length}: accepted tokens, coupled over rejection", f"{coupled / rejection:.3f}",
                      f"at least {LEAST[length]}", coupled / rejection >= LEAST[length])  # fmt: skip
    yield Outcome("chains on which block expects less than rejection", str(worse_blocks), "0", worse_blocks == 0)
    yield Outcome("positions where coupled is below (1 - TV) / (1 + TV)", str(below_bound), "0", below_bound == 0)


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("pair-expected", "real pair: expected tokens a step, computed from p and q", expected),
]
