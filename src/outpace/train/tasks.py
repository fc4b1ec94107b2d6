"""Prompts made of what the target has written: something to be done with one of its own texts.

What a target writes as a user seldom has a text to be summarised, translated or asked about in it. The answers of a
corpus are such texts, and they cost nothing; those held out are left out here, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from outpace.errors import UsageError
from outpace.text import Text
from outpace.train.corpus import HELD_OUT_EVERY, Corpora, read_shard
from outpace.train.record import seed_faults

INSTRUCTIONS = (
    "Summarise the following text in a few sentences.",
    "What are the main points of this text?",
    "Say in one paragraph what happens here, and why it matters.",
    "Translate the following into German.",
    "Translate the following into French.",
    "Translate the following into Spanish.",
    "Put this into plain words that a child understands.",
    "Rewrite this more formally.",
    "Write a title and a short abstract for this text.",
    "Use this text alone to answer: what is it about, and who is it for?",
    "List the facts that this text states.",
    "Go on with this text.",
    "Turn this into a conversation between two people.",
    "Imagine that you wrote this. Tell me in the first person how you came to think so.",
    "Write a short story in which this plays a part.",
    "Write a Python function that has to do with the following, and explain it.",
)

LEAST_TOKENS = 24
"""Shorter texts leave nothing to do."""


def write_tasks(corpora: Corpora, text: Text, out: Path, count: int, seed: int) -> int:
    """Returns how many prompts were written to `out`, JSON lines with the `prompt`: each an instruction for an answer
    of the corpora, taken at random and once. Raises UsageError where `out` is there already, or no answer is long
    enough."""
    if count < 1:
        raise UsageError(f"count must be at least 1, got {count}")
    if wrong := seed_faults(seed):
        raise UsageError(wrong[0])
    if out.exists():
        raise UsageError(f"{out} is there already: remove it, or name another file")
    texts = []
    for path in corpora.shards():
        arrays = read_shard(path)
        begins, ends = arrays["offsets"][:-1] + arrays["prompts"], arrays["offsets"][1:]
        for index, begin, end in zip(arrays["indices"], begins, ends, strict=True):
            if index % HELD_OUT_EVERY and end - 1 - begin >= LEAST_TOKENS:
                texts.append(arrays["tokens"][begin : end - 1].tolist())  # less the last one, which may end the turn
    if not texts:
        raise UsageError(f"{corpora.name}: no answer to make a task of: none has {LEAST_TOKENS} tokens")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(texts))[:count]
    lines = []
    for index in chosen:
        material = text.decode(texts[index]).strip()
        instruction = INSTRUCTIONS[rng.integers(len(INSTRUCTIONS))]
        parts = (instruction, material) if rng.integers(2) else (material, instruction)
        lines.append(json.dumps({"prompt": "\n\n".join(parts)}) + "\n")
    out.write_text("".join(lines), encoding="utf-8")
    return len(lines)
