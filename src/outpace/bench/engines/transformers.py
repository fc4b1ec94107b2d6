"""transformers on the same weights in bfloat16: plain, and with its prompt lookup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from time import perf_counter as clock
from typing import Any

from outpace.bench.contender import Contender, Reading
from outpace.bench.engines import DRAFT_LENGTH, LOOKUP, SETTLE_SECONDS, Field
from outpace.bench.tasks import Question


def contenders(given: Field) -> Iterator[Contender]:
    """Yields the settings; they share one load."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(given.threads)
    folder = given.folder
    start = clock()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True).eval()
    loaded = clock() - start
    yield Generates("transformers", model, loaded, given.ends, {})
    lookup = {"prompt_lookup_num_tokens": DRAFT_LENGTH, "max_matching_ngram_size": LOOKUP}
    yield Generates(f"transformers lookup {DRAFT_LENGTH}", model, loaded, given.ends, lookup)


class _Arrivals:
    """What `generate` takes as a streamer: notes when tokens come, and how many. The first call brings the prompt."""

    def __init__(self) -> None:
        self.start = clock()
        self.found: list[tuple[int, float]] = []
        self._prompt_seen = False

    def put(self, tokens: Any) -> None:
        if self._prompt_seen:
            self.found.append((int(tokens.numel()), clock() - self.start))
        self._prompt_seen = True

    def end(self) -> None:
        pass


class Generates:
    """One setting of model.generate."""

    settle_seconds = SETTLE_SECONDS

    def __init__(
        self, name: str, model: Any, load_seconds: float, ends: frozenset[int], options: dict[str, int]
    ) -> None:
        self.name = name
        self.version = f"transformers {metadata.version('transformers')}, torch {metadata.version('torch')}, bf16"
        self.load_seconds = load_seconds
        self._model = model
        self._options: dict[str, Any] = {**options, "eos_token_id": sorted(ends), "pad_token_id": min(ends)}

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        import torch

        prompt = torch.tensor([list(ids)])
        arrivals = _Arrivals()
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=max_tokens,
            streamer=arrivals,
            **self._options,
        )
        tokens = tuple(int(token) for token in output[0, len(ids) :])
        return Reading(tokens, tuple(arrivals.found), len(arrivals.found))

    def close(self) -> None:
        del self._model
