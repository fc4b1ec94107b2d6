"""llama.cpp: plain, with its Python binding's prompt lookup, and with a draft model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter as clock

import numpy as np

from outpace.bench import llama_cpp
from outpace.bench.contender import Contender, Reading, arrivals_of
from outpace.bench.engines import DRAFT_LENGTH, LOOKUP, SETTLE_SECONDS, Field
from outpace.bench.tasks import Question

Propose = Callable[[list[int]], list[int]]
"""All tokens so far -> a draft."""


def contenders(given: Field) -> Iterator[Contender]:
    """Yields the settings; they share one load of the file."""
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    start = clock()
    llama = llama_cpp.LlamaContext(given.model, threads=given.threads, positions=given.positions)
    given.resources.callback(llama.close)
    loaded = clock() - start
    lookup = LlamaPromptLookupDecoding(max_ngram_size=LOOKUP, num_pred_tokens=DRAFT_LENGTH)

    def look_up(ids: list[int]) -> list[int]:
        return [int(token) for token in lookup(np.asarray(ids, np.intc))]

    yield LlamaText(llama_cpp.NAME, llama, loaded, given.ends)
    yield LlamaText(f"{llama_cpp.NAME} lookup {DRAFT_LENGTH}", llama, loaded, given.ends, look_up)
    if given.draft is not None:
        start = clock()
        helper = llama_cpp.LlamaContext(given.draft, threads=given.threads, positions=given.positions)
        given.resources.callback(helper.close)
        loaded += clock() - start
        guess = Guesses(helper, DRAFT_LENGTH)
        yield LlamaText(f"{llama_cpp.NAME} draft {DRAFT_LENGTH}", llama, loaded, given.ends, guess, guess.reset)


class Guesses:
    """The greedy continuation of a draft model, its cache kept from call to call."""

    def __init__(self, helper: llama_cpp.LlamaContext, length: int) -> None:
        self._helper = helper
        self._length = length
        self._cached: list[int] = []

    def reset(self) -> None:
        self._helper.forget()
        self._cached = []

    def __call__(self, ids: list[int]) -> list[int]:
        pairs = enumerate(zip(self._cached, ids, strict=False))
        shared = next((i for i, (a, b) in pairs if a != b), min(len(self._cached), len(ids)))
        kept = min(shared, len(ids) - 1)
        self._helper.forget(after=kept)
        read(self._helper, ids[kept:], first=kept)
        drafted = [self._helper.likeliest(-1)]
        while len(drafted) < self._length:
            self._helper.decode(drafted[-1:], first=len(ids) + len(drafted) - 1)
            drafted.append(self._helper.likeliest(-1))
        self._cached = [*ids, *drafted[:-1]]
        return drafted


def read(llama: llama_cpp.LlamaContext, ids: Sequence[int], *, first: int) -> None:
    """Reads a prompt in batches, with the logits of its last token."""
    for start in range(0, len(ids), llama_cpp.BATCH):
        llama.decode(ids[start : start + llama_cpp.BATCH], first=first + start)


class LlamaText:
    """Greedy decoding; with `propose`, drafts are scored in one batch and kept as far as they are greedy."""

    settle_seconds = SETTLE_SECONDS

    def __init__(
        self,
        name: str,
        llama: llama_cpp.LlamaContext,
        load_seconds: float,
        ends: frozenset[int],
        propose: Propose = lambda ids: [],
        reset: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.version = f"llama-cpp-python {llama_cpp.version()}"
        self.load_seconds = load_seconds
        self._llama = llama
        self._ends = ends
        self._propose = propose
        self._reset = reset

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        llama, known = self._llama, list(ids)
        drafted = accepted = 0
        llama.forget()
        self._reset()
        start = clock()

        def one_pass() -> list[int]:
            nonlocal drafted, accepted
            if len(known) == len(ids):
                read(llama, ids, first=0)
                new = [llama.likeliest(-1)]
            else:
                draft = self._propose(known)[: max_tokens - (len(known) - len(ids)) - 1]
                first = len(known) - 1
                llama.decode([known[-1], *draft], first=first, every_logit=True)
                new = [llama.likeliest(0)]
                while len(new) <= len(draft) and new[-1] == draft[len(new) - 1]:
                    new.append(llama.likeliest(len(new)))
                llama.forget(after=first + len(new))
                drafted, accepted = drafted + len(draft), accepted + len(new) - 1
            known.extend(new)
            return new

        found = arrivals_of(one_pass, self._ends, max_tokens, start)
        return Reading(found.tokens, found.arrivals, found.passes, drafted, accepted)

    def close(self) -> None:
        """Nothing: the context belongs to the field."""
