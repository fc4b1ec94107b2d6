"""Decoding loops with one fault each: the metamorphic checks of this model must see every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from outpace.audit.parameters import Extreme, kept, log_probabilities
from outpace.audit.report import Control
from outpace.audit.states import all_accepted, cache_content, cache_length, like_fresh
from outpace.audit.subject import GREEDY, SAMPLED, Subject, Way
from outpace.audit.texts import counted, in_one_batch, same_texts, stop_ids
from outpace.audit.watched import WatchedSession, WatchedTarget
from outpace.generation import Generation
from outpace.sampling import Sampler
from outpace.types import (
    Draft,
    Law,
    LawMaker,
    Noise,
    Observation,
    Rule,
    Scores,
    Step,
    Stopper,
    Target,
    TargetSession,
    Verdict,
)

# -- caches ----------------------------------------------------------------------------------------------------------


class OneShort(WatchedSession):
    """Drops the last accepted token from the cache."""

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        super().commit(draft, Verdict(verdict.path[:-1], verdict.next_token))


class OneLong(WatchedSession):
    """Keeps the first rejected token of a chain in the cache."""

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        more = len(verdict.path)
        path = (*verdict.path, more) if draft.is_chain and more < draft.verified else verdict.path
        super().commit(draft, Verdict(path, verdict.next_token))


class RejectedLast(WatchedSession):
    """Goes on from the rejected token instead of its correction; every length is right."""

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        rejected = draft.children(verdict.path[-1] if verdict.path else -1)
        last = draft.tokens[rejected[0]] if rejected else verdict.next_token
        super().commit(draft, Verdict(verdict.path, last))


class NeverRewinds(WatchedSession):
    """A draft's cache that keeps one rejected guess where it can."""

    def rewind(self, length: int, last: int) -> None:
        super().rewind(min(length + 1, self.inner.length), last)


class SwapsRows(WatchedTarget):
    """Gives two requests of a batch each other's scores."""

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        scores = super().score_many(work)
        for i, (_, a) in enumerate(work):
            for j, (_, b) in enumerate(work[:i]):
                if len(a) == len(b):
                    scores[i], scores[j] = scores[j], scores[i]
                    return scores
        return scores


# -- the round -------------------------------------------------------------------------------------------------------


class Uncut:
    """A rule and a stopper that look for the end in a round's last token only."""

    name, lossless, shares_noise, verifies_trees = "uncut", True, True, True

    def __init__(self, rule: Rule, stop: Stopper) -> None:
        self._rule, self._stop, self._left, self._found = rule, stop, 0, False

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict:
        verdict = self._rule(draft, laws, noise)
        self._left = len(verdict.path) + 1
        return verdict

    def stop(self, token: int) -> str | None:
        self._found |= self._stop(token) is not None
        self._left -= 1
        return "stop" if self._found and not self._left else None


def uncut(request: Generation) -> None:
    """EOS and stop ids inside a block do not cut it."""
    one = Uncut(request.round.rule, request.round.stop)
    request.round.rule, request.round.stop = one, one.stop


def one_too_many(request: Generation) -> None:
    """max_tokens is off by one."""
    request.round.limit += 1


class OncePerBlock:
    """Laws that count the committed tokens and not the draft's own."""

    takes_argmax = False
    temperature = 0.0
    shared_noise = None

    def __init__(self, laws: LawMaker) -> None:
        self._laws = laws

    def __call__(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[Law]:
        return [self._laws.after(row, committed, ()) for row in scores.logits]

    def draw_all(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[int]:
        return [law.draw() for law in self(scores, committed, draft)]

    def after(self, logits: object, committed: Sequence[int], path: Sequence[int]) -> Law:
        return self._laws.after(logits, committed, ())


def once_per_block(request: Generation) -> None:
    """Penalties are counted once for a block."""
    request.round.laws = OncePerBlock(request.round.laws)


def keyed_by_round(request: Generation) -> None:
    """The target's noise is keyed by round and node, not by position."""
    plan = request.plan
    request.round.laws = Sampler(plan.params, plan.seed, plan.choice, shares_noise=False)


def forgets_the_bonus(request: Generation) -> None:
    """The drafter is not told a round's last token."""
    drafting = request.round.drafting
    if drafting is None:
        return
    observe = drafting.observe

    def forgetful(step: Step, scores: Scores) -> None:
        observe(replace(step, tokens=step.tokens[:-1]), scores)

    setattr(drafting, "observe", forgetful)  # noqa: B010  (an instance's own, for this request)


def reads_the_row_before(request: Generation) -> None:
    """Log-probabilities are read one row early."""
    observer = request.round.observer
    if observer is None:
        return

    def shifted(seen: Observation) -> None:
        rows = np.asarray(seen.scores.logits)
        observer(replace(seen, scores=Scores(np.concatenate([rows[:1], rows[:-1]]))))

    request.round.observer = shifted


def controls(subject: Subject, weaker: Target) -> Iterator[Control]:
    """Yields the mutants. weaker: a draft model whose guesses are sometimes wrong."""
    target, question = subject.model.target, subject.questions[0]
    drafted = subject.but(draft=weaker)
    itself = subject.but(draft=target)
    way = Way("model", 4)

    def cached(session: type[WatchedSession]) -> Subject:
        return drafted.but(target=WatchedTarget(target, session))

    yield Control(
        "cache one short", "the last accepted token is not kept", "cache length",
        partial(cache_length, cached(OneShort), way),
    )  # fmt: skip
    yield Control(
        "cache one long", "the first rejected token is kept", "cache length",
        partial(cache_length, cached(OneLong), way),
    )  # fmt: skip
    yield Control(
        "rejected token goes on", "the pass after a rejection begins with the rejected token", "cache content",
        partial(cache_content, cached(RejectedLast), way),
    )  # fmt: skip
    yield Control(
        "stale draft cache", "the draft's cache keeps a rejected guess", "cache length",
        partial(cache_length, drafted.but(draft=WatchedTarget(weaker, NeverRewinds)), way),
    )  # fmt: skip
    yield Control(
        "stale drafter state", "the drafter is not told the bonus", "self-draft",
        partial(all_accepted, subject.but(change=forgets_the_bonus), Way("model", 4), (GREEDY, SAMPLED)),
    )  # fmt: skip
    yield Control(
        "drafter remembers another text", "the drafter is not told the correction", "drafter state",
        partial(like_fresh, drafted.but(change=forgets_the_bonus), way),
    )  # fmt: skip
    yield Control(
        "EOS not cut", "tokens after an ending one are kept", "ends, stop id at each place of a block",
        partial(stop_ids, itself.but(change=uncut), "model", question),
    )  # fmt: skip
    yield Control(
        "max_tokens off by one", "one token too many", "ends, max_tokens 1 to 12",
        partial(counted, itself.but(change=one_too_many), "model", question),
    )  # fmt: skip
    yield Control(
        "penalty once per block", "the draft's own tokens are not counted", "parameters, frequency_penalty 2",
        partial(
            kept, itself.but(change=once_per_block), "model", Extreme("", {"frequency_penalty": 2.0}), (8,)
        ),
    )  # fmt: skip
    yield Control(
        "noise keyed by round", "a position's draw depends on where the round began", "seeded text",
        partial(same_texts, itself.but(change=keyed_by_round), Way("model", 3), SAMPLED, subject.questions[:2]),
    )  # fmt: skip
    yield Control(
        "batch rows swapped", "two requests get each other's scores", "batches",
        partial(in_one_batch, itself.but(target=SwapsRows(target)), "model", 8),
    )  # fmt: skip
    yield Control(
        "log-probabilities one row early", "the row before the token's own is read", "parameters, logprobs",
        partial(log_probabilities, itself.but(change=reads_the_row_before), "model"),
    )  # fmt: skip
