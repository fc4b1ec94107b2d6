"""llama.cpp through llama-cpp-python's plain C functions; nothing of its sampling or wrapper is in the way."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from outpace.errors import MissingExtra, ModelError

NAME = "llama.cpp"
BATCH = 512


def api() -> ModuleType:
    """Returns the module of C functions. Raises MissingExtra without it, which costs nothing to find out."""
    try:
        import llama_cpp
    except ImportError as error:
        raise MissingExtra("the comparison with llama.cpp (--peers)", "peers") from error
    module: ModuleType = llama_cpp
    return module


def version() -> str:
    """Returns the version of llama-cpp-python."""
    return metadata.version("llama-cpp-python")


@cache
def _be_quiet(llama: Any) -> Any:
    """Returns the callback that llama.cpp logs to from now on. C holds only a pointer to it: it is kept for good."""
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    return quiet


class LlamaContext:
    """A model with one cache of `positions`, shared by `sequences`."""

    def __init__(self, model: Path, *, threads: int, positions: int, sequences: int = 1) -> None:
        """Loads `model`. Raises MissingExtra without llama-cpp-python, ModelError when llama.cpp does not take it."""
        self.api: Any = api()
        llama = self.api
        _be_quiet(llama)
        llama.llama_backend_init()
        self._model = llama.llama_model_load_from_file(str(model).encode(), llama.llama_model_default_params())
        if not self._model:
            raise ModelError(f"llama.cpp cannot load {model}")
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = positions, BATCH, BATCH, sequences
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self._context = llama.llama_init_from_model(self._model, params)
        if not self._context:
            llama.llama_model_free(self._model)
            raise ModelError(f"llama.cpp cannot make a context for {model}")
        self._memory = llama.llama_get_memory(self._context)
        self._batch = llama.llama_batch_init(BATCH, 0, 1)
        self.vocab_size = int(llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model)))

    def decode(self, tokens: Sequence[int], *, first: int, sequence: int = 0, every_logit: bool = False) -> None:
        """Scores tokens at positions `first` on; logits of each, or of the last alone. At most BATCH tokens."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, first + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = every_logit or i == len(tokens) - 1
        code = self.api.llama_decode(self._context, batch)
        if code != 0:
            raise ModelError(f"llama.cpp could not decode a batch of {len(tokens)} tokens (code {code})")
        self.api.llama_synchronize(self._context)

    def forget(self, *, sequence: int = 0, after: int = 0) -> None:
        """Drops a sequence's cache from position `after` on."""
        self.api.llama_memory_seq_rm(self._memory, sequence, after, -1)

    def likeliest(self, row: int) -> int:
        """Returns the greedy token of a row of the last `decode`; -1 is the last one."""
        import numpy as np

        logits = self.api.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax())

    def close(self) -> None:
        """Gives batch, cache and weights back."""
        self.api.llama_batch_free(self._batch)
        self.api.llama_free(self._context)
        self.api.llama_model_free(self._model)
