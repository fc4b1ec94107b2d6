"""vLLM on the same weights in bfloat16: plain, and with its n-gram drafts. It tells no arrivals, only totals."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from time import perf_counter as clock
from typing import Any

from outpace.bench.contender import Contender, Reading
from outpace.bench.engines import DRAFT_LENGTH, LOOKUP, SETTLE_SECONDS, Field
from outpace.bench.tasks import Question


def contenders(given: Field) -> Iterator[Contender]:
    """Yields the settings."""
    drafts = {
        "method": "ngram",
        "num_speculative_tokens": DRAFT_LENGTH,
        "prompt_lookup_max": LOOKUP,
        "prompt_lookup_min": 2,
    }
    yield Vllm("vllm", given, {})
    yield Vllm(f"vllm ngram {DRAFT_LENGTH}", given, {"speculative_config": drafts})


class Vllm:
    """One engine. A time to first token is that of a request for one token."""

    settle_seconds = SETTLE_SECONDS

    def __init__(self, name: str, given: Field, options: dict[str, Any]) -> None:
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{given.threads - 1}")
        import vllm

        self.name = name
        self.version = f"vllm {metadata.version('vllm')}, bf16"
        start = clock()
        self._engine = vllm.LLM(
            str(given.folder),
            dtype="bfloat16",
            max_model_len=given.positions,
            max_num_seqs=1,
            enable_prefix_caching=False,
            **options,
        )
        self.load_seconds = clock() - start
        self._params = vllm.SamplingParams
        self._ends = sorted(given.ends)

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        _, first = self._generate(ids, 1)
        tokens, total = self._generate(ids, max_tokens)
        if len(tokens) == 1:
            return Reading(tokens, ((1, total),))
        return Reading(tokens, ((1, first), (len(tokens) - 1, max(total, first + 1e-9))))

    def _generate(self, ids: Sequence[int], count: int) -> tuple[tuple[int, ...], float]:
        params = self._params(temperature=0.0, max_tokens=count, stop_token_ids=self._ends)
        start = clock()
        [request] = self._engine.generate([{"prompt_token_ids": list(ids)}], params, use_tqdm=False)
        return tuple(request.outputs[0].token_ids), clock() - start

    def close(self) -> None:
        del self._engine
