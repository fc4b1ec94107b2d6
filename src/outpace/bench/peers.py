"""Other engines on the same file, threads and run: what our kernels are measured against."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, TracebackType
from typing import Protocol

from outpace.bench import llama_cpp


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
    """llama.cpp's forwards."""

    name = llama_cpp.NAME

    def __init__(self, model: Path, *, threads: int, context: int) -> None:
        """Loads `model` and fills a cache with `context` tokens.

        Raises MissingExtra without llama-cpp-python, ModelError when llama.cpp does not take the file.
        """
        # Room for the context, the rows after it, and a prefill in a sequence of its own.
        self._llama = llama_cpp.LlamaContext(model, threads=threads, positions=1024, sequences=2)
        self.version = llama_cpp.version()
        self._filled = context
        self._llama.decode(_tokens(context), first=0)

    @staticmethod
    def api() -> ModuleType:
        """Returns the module of C functions. Raises MissingExtra without it, which costs nothing to find out."""
        return llama_cpp.api()

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._llama.close()

    def score(self, rows: int) -> None:
        self._llama.decode(_tokens(rows), first=self._filled, every_logit=True)
        self._llama.forget(after=self._filled)

    def prefill(self, tokens: int) -> None:
        self._llama.decode(_tokens(tokens), first=0, sequence=1)
        self._llama.forget(sequence=1)


def _tokens(count: int) -> list[int]:
    """Returns ordinary ids: what they say does not change what they cost."""
    return [1000 + i % 997 for i in range(count)]
