"""The C++ engine as a target: whatever the draft, a row has the logits of one token at a time, to the last bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from outpace import _native
from outpace.errors import ContextOverflow, UsageError
from outpace.native.weights import ModelConfig
from outpace.targets.cache import Hidden, Prefix, PrefixStore
from outpace.targets.kept import KeptRows
from outpace.types import Context, Draft, Prompt, Scores, TargetSession, Verdict

Opened = TypeVar("Opened")

PREFILL_SLICE = 128
"""Tokens that are prefilled in one call; between calls Python looks for signals."""


class NativeSession:
    """One request; a TargetSession."""

    __slots__ = ("_hidden", "_last", "_native", "_scored", "_target", "taps")

    def __init__(
        self, target: NativeTarget, native: _native.Session, last: int, taps: tuple[int, ...], hidden: list[Hidden]
    ) -> None:
        self._target = target
        self._native = native
        self._last = last
        self.taps = taps
        self._hidden = KeptRows(hidden)  # of the cached tokens
        self._scored: Hidden | None = None  # of the rows that wait for commit

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._native.length

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        """Keeps the last token and the accepted path in the cache, forgets every other node."""
        try:
            self._native.commit(verdict.path)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self._scored is not None:
            self._hidden.add(self._scored, verdict.path)
            self._scored = None
        self._last = verdict.next_token
        self._target._trim()

    def rewind(self, length: int, last: int) -> None:
        """Forgets what follows the first `length` cached tokens; `last` becomes the last committed token."""
        try:
            self._native.rewind(length)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._scored = None
        if self._hidden:
            self._hidden = KeptRows([self._hidden.joined()[:length]])
        self._last = last

    def share(self) -> None:
        """Makes what is cached now a prefix for other prompts."""
        self._target._keep(self._native, self.taps, self._hidden)

    def close(self) -> None:
        """Gives the cache back; its tokens stay with the target for later prompts while there is room."""
        if not self._native.closed:
            self.share()
            self._native.close()


@dataclass(frozen=True, slots=True)
class Reductions:
    """How a target's file is loaded again at less cost: its first layers, and its weights at fewer bits."""

    first_layers: Callable[[int], NativeTarget]
    packed: Callable[[], NativeTarget]


class NativeTarget:
    """A model on the C++ engine; a Target. `load_native` makes one.

    cache_tokens: see `hold`; by default one full context. exit_layer: after how many layers an early exit is,
    by default a quarter of them. reductions: None where no file is known.
    """

    engine = "native"
    scores_trees = True
    bit_exact = True

    def __init__(
        self,
        model: _native.Model,
        config: ModelConfig,
        name: str,
        *,
        cache_tokens: int | None = None,
        exit_layer: int | None = None,
        reductions: Reductions | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.name = name
        self.threads = model.threads
        self.vocab_size = config.vocab_size
        self.eos_ids = config.eos_ids
        self._output_ids = np.array(config.output_ids) if config.output_ids else None
        self.max_length = model.context
        self.threads = model.threads
        self.hidden_layers = config.layers
        self.weight_bytes = model.pass_bytes
        self.kv_bytes_per_token = model.page_bytes // _native.page_positions
        self._prefixes = PrefixStore()
        self._storing = threading.Lock()  # held by whoever reads or changes the prefixes
        self.hold(cache_tokens or model.context)
        self.exit_layer = max(1, config.layers // 4) if exit_layer is None else exit_layer
        self._reductions = reductions
        self._first_layers: NativeTarget | None = None
        self._packed: NativeTarget | None = None

    def hold(self, cache_tokens: int) -> None:
        """Sets how many positions are held at most before prefixes of closed requests are given up.

        Keys and values of open sessions count; of hidden states, which prefixes do not share, as many are held again.
        """
        self._page_limit = -(-cache_tokens // _native.page_positions)

    def early_exit(self) -> NativeTarget:
        """Returns the first `exit_layer` layers with the target's own norm and output matrix, sharing its weights."""
        if self._first_layers is None:
            self._first_layers = self._reduced().first_layers(self.exit_layer)
        return self._first_layers

    def at_fewer_bits(self) -> NativeTarget:
        """Returns the target with its weights rounded to 4.5 bits, a copy in memory. Raises UsageError, TooLarge."""
        if self._packed is None:
            self._packed = self._reduced().packed()
        return self._packed

    def _reduced(self) -> Reductions:
        if self._reductions is None:
            raise UsageError(f"{self.name} does not come from a file that could be loaded once more: use 'suffix'")
        return self._reductions

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[NativeSession, Context]:
        """Returns a session whose cache holds all of the prompt but its last token, and the hidden states of `taps`.

        Raises ContextOverflow when the prompt is empty or does not fit, UsageError for ids or layers that the model
        does not have.
        """
        return _drained(self._opening(prompt, taps))

    def opening(
        self, prompt: Prompt, taps: tuple[int, ...] = ()
    ) -> Generator[int, None, tuple[NativeSession, Context]]:
        """Yields the tokens cached so far, a slice of the prompt at a time; returns what `open` returns.

        The prompt, less its last token, becomes a prefix at once: requests that begin alike share it while they run.
        """
        session, context = yield from self._opening(prompt, taps)
        session.share()
        return session, context

    def _opening(self, prompt: Prompt, taps: tuple[int, ...]) -> Generator[int, None, tuple[NativeSession, Context]]:
        ids = prompt.ids
        self._check(ids, taps)
        hidden: list[Hidden] = []
        with self._storing:
            prefix, reused = self._prefixes.longest(ids[:-1], taps)
            native = self.model.open() if prefix is None else prefix.session.fork(reused)
            if prefix is not None and prefix.hidden is not None and taps:
                hidden.append(prefix.hidden[:reused])
            self._make_room((len(ids) - reused) // _native.page_positions + 1)
        try:
            yield reused
            for start in range(reused, len(ids) - 1, PREFILL_SLICE):
                end = min(start + PREFILL_SLICE, len(ids) - 1)
                rows = self.model.prefill(native, ids[start:end], taps)
                if rows is not None:
                    hidden.append(rows)
                yield end
        except BaseException:
            native.close()
            raise
        context = Context(hidden=np.concatenate(hidden) if hidden else self._no_hidden(taps))
        return NativeSession(self, native, ids[-1], taps, hidden), context

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        """Returns the scores of each draft: one forward over [last token] + nodes of every request.

        The arrays stay valid as long as they are referred to. Raises UsageError for a token that the model does not
        have, and when a draft does not fit in the context.
        """
        own = cast(
            "Sequence[tuple[NativeSession, Draft]]", work
        )  # sessions are scored by the target that opened them
        taps = own[0][0].taps if own else ()
        mixed = len(own) > 1 and any(session.taps != taps for session, _ in own)
        if mixed:
            taps = tuple(sorted({layer for session, _ in own for layer in session.taps}))
        try:
            rows = self.model.score(
                [(session._native, (session._last, *draft.tokens), draft.parents) for session, draft in own], taps
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self._output_ids is not None:
            rows = [(self._spread(logits), hidden) for logits, hidden in rows]
        if not taps:
            return [Scores(logits) for logits, _ in rows]
        scores = []
        for (session, _), (logits, hidden) in zip(own, rows, strict=True):
            if mixed and hidden is not None:
                hidden = hidden[:, [taps.index(layer) for layer in session.taps]] if session.taps else None
            session._scored = hidden
            scores.append(Scores(logits, hidden))
        return scores

    def embed(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Returns the embeddings [N, H] f32."""
        return self.model.embed(ids)

    def head(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the logits [N, V] of hidden states [N, H] after the last layer: the final norm, then the head."""
        logits = self.model.head(np.ascontiguousarray(hidden, np.float32))
        return logits if self._output_ids is None else self._spread(logits)

    def _spread(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the rows over all tokens; one that the output has no row for has -inf."""
        spread = np.full((len(logits), self.vocab_size), -np.inf, np.float32)
        spread[:, self._output_ids] = logits
        return spread

    def profile_rows(self, rows: int, context: int = 128, repeats: int = 5, requests: int = 1) -> float:
        """Returns the seconds of a pass over `rows` rows of each request after its `context` cached tokens.

        The best of several.
        """
        if rows < 1 or context < 0 or rows + context > self.max_length:
            raise UsageError(f"rows and context must fit in {self.max_length} positions, got {rows} and {context}")
        sessions = [self.model.open() for _ in range(requests)]
        try:
            tokens = tuple((7919 * i) % self.vocab_size for i in range(context + rows))
            for session in sessions:
                self.model.prefill(session, tokens[:context])
            work = [(session, tokens[context:], tuple(range(-1, rows - 2))) for session in sessions]
            best = float("inf")
            for _ in range(repeats):
                start = time.perf_counter()
                self.model.score(work)
                best = min(best, time.perf_counter() - start)
            return best
        finally:
            for session in sessions:
                session.close()

    def forget_prefixes(self) -> None:
        """Gives up every prefix of a closed request."""
        with self._storing:
            while len(self._prefixes):
                self._prefixes.drop_oldest()
        for reduced in (self._first_layers, self._packed):
            if reduced is not None:
                reduced.forget_prefixes()

    def _check(self, ids: Sequence[int], taps: tuple[int, ...]) -> None:
        if not ids:
            raise ContextOverflow("the prompt is empty, a request needs at least one token")
        if len(ids) > self.max_length:
            raise ContextOverflow(
                f"the prompt has {len(ids)} tokens, the context holds {self.max_length}: shorten the prompt or load "
                "the model with a larger context"
            )
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.vocab_size:
            raise UsageError(f"token ids must be in [0, {self.vocab_size}), got {low if low < 0 else high}")
        for layer in taps:
            if not 0 <= layer < self.hidden_layers:
                raise UsageError(f"taps are layers in [0, {self.hidden_layers}), got {layer}")

    def _no_hidden(self, taps: tuple[int, ...]) -> Hidden | None:
        return np.empty((0, len(taps), self.config.hidden_size), np.float32) if taps else None

    def _keep(self, native: _native.Session, taps: tuple[int, ...], hidden: KeptRows) -> None:
        length = native.length
        joined = hidden.joined() if hidden and length else None
        tokens = np.array(native.tokens, np.int32)
        with self._storing:
            self._prefixes.add(Prefix(tokens, native.fork(length), taps if joined is not None else (), joined))
            self._make_room()

    def _trim(self) -> None:
        if len(self._prefixes):
            with self._storing:
                self._make_room()

    def _make_room(self, pages: int = 0) -> None:
        """Gives up prefixes until `pages` more fit; open sessions are never touched. The caller holds the lock."""
        tapped = self._page_limit * _native.page_positions
        while len(self._prefixes) and (
            self.model.pages_in_use + pages > self._page_limit or self._prefixes.tapped > tapped
        ):
            self._prefixes.drop_oldest()


def _drained(opening: Generator[int, None, Opened]) -> Opened:
    """Returns what a generator returns at its end."""
    while True:
        try:
            next(opening)
        except StopIteration as end:
            opened: Opened = end.value
            return opened
