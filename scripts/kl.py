#!/usr/bin/env python3
"""Mean KL divergence of the native engine from an f32 reference on the same weights, beside llama.cpp's.

    python scripts/kl.py MODEL [--tokens 2000] [--prompts FILE.jsonl ...]

MODEL is a catalogue name or a GGUF file. For every position of the texts the law softmax(reference logits) is
compared with softmax(engine logits): KL(reference || engine), in nats. llama.cpp's column needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.models import resolve
from outpace.native.gguf import open_gguf
from outpace.native.loading import load_native
from outpace.native.reference import ReferenceModel
from outpace.text import Text
from outpace.types import Draft, Prompt

Floats = NDArray[np.float32]
DATA = Path(__file__).parents[1] / "data"
PROMPTS = (DATA / "spec_bench_dev.jsonl", DATA / "humaneval_prompts.jsonl")
CHUNK = 250  # tokens of a text: long enough for attention to matter, short enough for the reference


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def kl(reference: Floats, engine: Floats) -> NDArray[np.float64]:
    """Returns KL(softmax(reference) || softmax(engine)) of each row, in nats."""
    p, q = log_softmax(reference), log_softmax(engine)
    out: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=1)
    return out


def texts(paths: Sequence[Path], text: Text, tokens: int) -> Iterator[list[int]]:
    """Yields chunks of CHUNK ids, `tokens` in all, from every task in turn: its prompts one after the other.

    No two chunks share a beginning, so that one token's luck is not counted many times.
    """
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    by_task: dict[str, list[str]] = {}
    for record in map(json.loads, lines):
        by_task.setdefault(record["task"], []).append(record["turns"][0])
    streams = [text.encode("\n\n".join(prompts), special=False) for prompts in by_task.values()]
    for number in range(tokens // CHUNK):
        stream, start = streams[number % len(streams)], CHUNK * (number // len(streams))
        yield stream[start : start + CHUNK]


def measure(model: str, tokens: int = 2000, prompts: Sequence[Path] = PROMPTS, threads: int = 2) -> dict[str, object]:
    """Returns the mean KL of both engines; llama.cpp's and the ratio only where the extra is installed."""
    path = resolve(model)
    file = open_gguf(path)
    target = load_native(path, threads=threads, context=2 * CHUNK)
    reference = ReferenceModel(file)
    try:
        from llama_cpp import Llama
    except ImportError:
        peer = None
    else:
        peer = Llama(str(path), n_ctx=2 * CHUNK, n_threads=threads, logits_all=True, verbose=False)

    ours: list[NDArray[np.float64]] = []
    theirs: list[NDArray[np.float64]] = []
    for ids in texts(prompts, Text.from_weights(file), tokens):
        exact = reference.logits(ids)
        session, _ = target.open(Prompt((ids[0],)))
        [scores] = target.score_many([(session, Draft.chain(ids[1:]))])
        ours.append(kl(exact, scores.logits))
        session.close()
        if peer:
            peer.reset()
            peer.eval(ids)
            theirs.append(kl(exact, np.asarray(peer.scores[: len(ids)], np.float32)))

    mean = float(np.concatenate(ours).mean())
    record: dict[str, object] = {"model": model, "tokens": sum(map(len, ours)), "outpace": mean}
    if theirs:
        peers = float(np.concatenate(theirs).mean())
        record |= {"llama.cpp": peers, "ratio": mean / peers}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--prompts", type=Path, nargs="+", default=PROMPTS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(json.dumps(measure(options.model, options.tokens, options.prompts, options.threads)))


if __name__ == "__main__":
    main()
