"""Other engines on the same file, threads and run: what ours is measured against."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol

from outpace.errors import MissingExtra, ModelError


class Peer(Protocol):
    """An engine that scores rows after a fixed context."""

    name: str
    version: str

    def score(self, rows: int) -> None:
        """Scores `rows` tokens after the context, with logits for each of them, and forgets them again."""
        ...

    def prefill(self, tokens: int) -> None:
        """Reads `tokens` tokens into an empty cache, with the logits of the last."""
        ...


class LlamaCpp:
    """llama.cpp through llama-cpp-python's plain C functions; nothing of its sampling or wrapper is in the way."""

    name = "llama.cpp"

    def __init__(self, model: Path, *, threads: int, context: int) -> None:
        """Loads `model` and fills a cache with `context` tokens.

        Raises MissingExtra without llama-cpp-python, ModelError when llama.cpp does not take the file.
        """
        self._api: Any = self.api()
        llama_cpp = self._api
        self.version = metadata.version("llama-cpp-python")
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: C holds only a pointer
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(model).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise ModelError(f"llama.cpp cannot load {model}")
        params = llama_cpp.llama_context_default_params()
        # Room for the context, the rows after it, and a prefill in a sequence of its own.
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 1024, 512, 512, 2
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise ModelError(f"llama.cpp cannot make a context for {model}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._filled = context
        self._decode(_tokens(context), first=0, sequence=0, every_logit=False)

    @staticmethod
    def api() -> ModuleType:
        """Returns the module of C functions. Raises MissingExtra without it, which costs nothing to find out."""
        try:
            import llama_cpp
        except ImportError as error:
            raise MissingExtra("the comparison with llama.cpp (--peers)", "peers") from error
        module: ModuleType = llama_cpp
        return module

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def score(self, rows: int) -> None:
        self._decode(_tokens(rows), first=self._filled, sequence=0, every_logit=True)
        self._api.llama_memory_seq_rm(self._memory, 0, self._filled, -1)

    def prefill(self, tokens: int) -> None:
        self._decode(_tokens(tokens), first=0, sequence=1, every_logit=False)
        self._api.llama_memory_seq_rm(self._memory, 1, 0, -1)

    def _decode(self, tokens: Sequence[int], *, first: int, sequence: int, every_logit: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, first + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = every_logit or i == len(tokens) - 1
        code = self._api.llama_decode(self._context, batch)
        if code != 0:
            raise ModelError(f"llama.cpp could not decode a batch of {len(tokens)} tokens (code {code})")
        self._api.llama_synchronize(self._context)


def _tokens(count: int) -> list[int]:
    """Returns ordinary ids: what they say does not change what they cost."""
    return [1000 + i % 997 for i in range(count)]
