"""OpenVINO GenAI, which reads GGUF: plain, and with its prompt lookup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from time import perf_counter as clock
from typing import Any

import numpy as np

from outpace.bench.contender import Contender, Reading
from outpace.bench.engines import DRAFT_LENGTH, LOOKUP, SETTLE_SECONDS, Field
from outpace.bench.tasks import Question
from outpace.errors import UsageError


def contenders(given: Field) -> Iterator[Contender]:
    """Yields the settings."""
    if not given.model.is_file():
        raise UsageError(f"openvino reads a GGUF file here, got the folder {given.model.name}")
    yield OpenVino("openvino", given, lookup=False)
    yield OpenVino(f"openvino lookup {DRAFT_LENGTH}", given, lookup=True)


class OpenVino:
    """One pipeline."""

    settle_seconds = SETTLE_SECONDS

    def __init__(self, name: str, given: Field, *, lookup: bool) -> None:
        import openvino
        import openvino_genai

        self.name = name
        self.version = f"openvino-genai {metadata.version('openvino-genai')}"
        start = clock()
        more: dict[str, Any] = {"prompt_lookup": True} if lookup else {}
        self._pipe = openvino_genai.LLMPipeline(str(given.model), "CPU", INFERENCE_NUM_THREADS=given.threads, **more)
        self.load_seconds = clock() - start
        config = openvino_genai.GenerationConfig()
        config.do_sample, config.apply_chat_template = False, False
        config.stop_token_ids = set(given.ends)
        if lookup:
            config.num_assistant_tokens, config.max_ngram_size = DRAFT_LENGTH, LOOKUP
        self._config = config
        self._inputs = openvino_genai.TokenizedInputs
        self._tensor = openvino.Tensor

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        self._config.max_new_tokens = max_tokens
        prompt = np.asarray([ids], np.int64)
        inputs = self._inputs(self._tensor(prompt), self._tensor(np.ones_like(prompt)))
        result = self._pipe.generate(inputs, self._config)
        raw, times = result.perf_metrics.raw_metrics, result.perf_metrics
        first = times.get_ttft().mean / 1e3
        stamps = raw.m_new_token_times
        counts = list(raw.m_batch_sizes) if len(raw.m_batch_sizes) == len(stamps) else [1] * len(stamps)
        total = times.get_generate_duration().mean / 1e3
        tokens = tuple(int(token) for token in result.tokens[0])
        if sum(counts) != len(tokens):  # the stamps do not say which tokens came together: only the ends are known
            return Reading(tokens, ((1, first), (len(tokens) - 1, max(total, first + 1e-9))))
        origin = stamps[0] - 1e3 * first
        return Reading(tokens, tuple((c, (at - origin) / 1e3) for c, at in zip(counts, stamps, strict=True)))

    def close(self) -> None:
        del self._pipe
