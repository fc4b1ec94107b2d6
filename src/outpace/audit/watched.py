"""A target that keeps account of what the cache of every session should hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from outpace.types import Context, Draft, Prompt, Scores, Target, TargetSession, Verdict


class WatchedSession:
    """A session, and the tokens that it should know: those in its cache and the last one."""

    def __init__(self, inner: TargetSession, ids: Sequence[int], faults: list[str]) -> None:
        self.inner = inner
        self.tokens = list(ids)
        self.closed = False
        self._faults = faults

    @property
    def length(self) -> int:
        return self.inner.length

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        self.inner.commit(draft, verdict)
        self.tokens += verdict.tokens(draft)
        self._check("commit")

    def rewind(self, length: int, last: int) -> None:
        self.inner.rewind(length, last)
        self.tokens[length:] = [last]
        self._check("rewind")

    def _check(self, after: str) -> None:
        due = len(self.tokens) - 1
        if self.inner.length != due:
            self._faults.append(f"after a {after} a cache holds {self.inner.length} tokens, {due} are due")

    def close(self) -> None:
        self.inner.close()
        self.closed = True


class WatchedTarget:
    """`target`, whose sessions are watched. session: the class of its sessions, a broken one in a mutant."""

    def __init__(
        self,
        target: Target,
        session: Callable[[TargetSession, Sequence[int], list[str]], WatchedSession] = WatchedSession,
    ) -> None:
        self.inner = target
        self.name, self.engine, self.threads = target.name, target.engine, target.threads
        self.vocab_size, self.eos_ids, self.max_length = target.vocab_size, target.eos_ids, target.max_length
        self.scores_trees, self.hidden_layers = target.scores_trees, target.hidden_layers
        self.bit_exact, self.weight_bytes = target.bit_exact, target.weight_bytes
        self._session = session
        self._open: list[WatchedSession] = []
        self._faults: list[str] = []

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        session, context = self.inner.open(prompt, taps)
        watched = self._session(session, prompt.ids, self._faults)
        self._open = [one for one in self._open if not one.closed] + [watched]
        return watched, context

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        return self.inner.score_many([(cast(WatchedSession, session).inner, draft) for session, draft in work])

    def fault(self, committed: Sequence[int]) -> str | None:
        """Returns what is wrong with a cache, if anything: its length, or that it is not of these tokens."""
        for session in self._open:
            known = min(len(session.tokens), len(committed))
            if not session.closed and session.tokens[:known] != list(committed[:known]):
                return "a draft model's cache holds another text than the committed one"
        return self._faults[0] if self._faults else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
