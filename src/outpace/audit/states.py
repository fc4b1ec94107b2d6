"""Checks of state, round by round: cache lengths, a drafter's state against a fresh one, and self-draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from outpace.api import Model
from outpace.audit.report import Finding, NotCovered, Task
from outpace.audit.subject import FILTERED, GREEDY, SAMPLED, Subject, Wanted, Way
from outpace.audit.texts import lossless_rules
from outpace.audit.watched import WatchedTarget
from outpace.drafters.translate import Translated
from outpace.sampling import Sampler
from outpace.types import EMPTY, Budget, Draft, Prompt

ROUNDING = 0.05
"""Share of a row's range by which a logit may be off on an engine that does not promise bits."""

PENALISED: Wanted = SAMPLED | {"repetition_penalty": 1.2, "frequency_penalty": 0.5}


def cache_tasks(subject: Subject, drafter: str, lengths: Sequence[int]) -> Iterator[Task]:
    """Yields the checks of the target's cache, and of a draft model's."""
    for length in lengths:
        way = Way(drafter, length)
        yield Task("cache length", str(way), partial(cache_length, subject, way))
    yield Task("cache content", drafter, partial(cache_content, subject, Way(drafter, 4)))


def cache_length(subject: Subject, way: Way) -> Finding:
    """After every round the target's cache holds every committed token but the last, and a draft model's no more.

    A draft of another vocabulary keeps a cache of other tokens, which is not looked into.
    """
    draft = subject.model.draft
    watched = None if draft is None or isinstance(draft, Translated) else WatchedTarget(draft)
    watching = replace(subject, model=Model(subject.model.target, subject.model.text, watched or draft))
    rounds = 0
    for wanted in (GREEDY, SAMPLED):
        for number, question in enumerate(subject.questions[:3]):
            for request, step in watching.steps(question, way, wanted):
                rounds += 1
                committed, cached = request.round.committed, request.round.session.length
                known = (
                    committed[: -len(step.tokens)] if step.drafted else []
                )  # a draft model catches up when it drafts
                fault = watched.fault(known) if watched else None
                if cached != len(committed) - 1:
                    fault = f"the cache holds {cached} tokens, {len(committed)} are committed"
                if fault:
                    return Finding(False, f"prompt {number}, round {rounds}: {fault}")
    return Finding(True, f"{rounds} rounds")


def cache_content(subject: Subject, way: Way) -> Finding:
    """Every few rounds, the row after the last committed token is the one that a fresh session scores.

    To the bit where the engine promises it; elsewhere within what rounding may do, which one wrong token exceeds.
    """
    target = subject.model.target
    allowed = 0.0 if target.bit_exact else ROUNDING
    compared, largest = 0, 0.0
    for number, question in enumerate(subject.questions[:2]):
        for turn, (request, step) in enumerate(subject.steps(question, way, SAMPLED)):
            if turn % 3 or step.finish:
                continue
            one = request.round
            [kept] = target.score_many([(one.session, EMPTY)])
            row = np.array(kept.logits[0], np.float64)
            fresh, _ = target.open(Prompt(tuple(one.committed)))
            [anew] = target.score_many([(fresh, EMPTY)])
            off = float(np.abs(row - np.asarray(anew.logits[0])).max())
            fresh.close()
            compared, largest = compared + 1, max(largest, off)
            if off > allowed * float(np.ptp(row)):
                return Finding(False, f"prompt {number}, round {turn}: a logit is off by {off:.3g}")
    if target.bit_exact:
        return Finding(True, f"{compared} rows equal to the bit")
    return Finding(True, f"{compared} rows, no logit off by more than {largest:.2g}")


def fresh_tasks(subject: Subject, drafter: str, lengths: Sequence[int]) -> Iterator[Task]:
    """Yields the checks of a drafter's state."""
    for length in filter(None, lengths):
        way = Way(drafter, length)
        yield Task("drafter state", str(way), partial(like_fresh, subject, way))


def like_fresh(subject: Subject, way: Way) -> Finding:
    """After every other round the session proposes what one that is opened on the committed tokens proposes."""
    target, compared, drafted = subject.model.target, 0, 0
    for number, question in enumerate(subject.questions[:4]):
        for turn, (request, step) in enumerate(subject.steps(question, way, FILTERED)):
            one, plan = request.round, request.plan
            if one.fault:
                return Finding(False, f"prompt {number}: the drafter was dropped: {one.fault}")
            if turn % 2 or step.finish or one.drafting is None:
                continue
            drafter, laws = plan.drafter, Sampler(plan.params, plan.seed, plan.choice)
            budget = Budget.chain(4).clipped(target.max_length - len(one.committed) - 1)
            prompt = Prompt(tuple(one.committed))
            session, context = target.open(prompt, drafter.taps)
            fresh = drafter.open(prompt, context, laws)
            [kept], [anew] = drafter.propose_many([(one.drafting, budget)]), drafter.propose_many([(fresh, budget)])
            fresh.close()
            session.close()
            if kept.probes:
                raise NotCovered("it drafts from what its probes found out, which a fresh session has not asked")
            compared, drafted = compared + 1, drafted + len(kept)
            if _content(kept) != _content(anew):
                return Finding(
                    False,
                    f"prompt {number}, round {turn}: it proposes {list(kept.tokens)}, a fresh session "
                    f"{list(anew.tokens)}",
                )
    if not drafted:
        raise NotCovered("nothing was drafted")
    return Finding(True, f"{compared} drafts equal, {drafted} tokens")


def _content(draft: Draft) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return draft.tokens, draft.parents, draft.probes


def self_draft_tasks(subject: Subject, lengths: Sequence[int]) -> Iterator[Task]:
    """Yields the contract of a target that drafts for itself: under every rule all is accepted, in every round."""
    for rule in lossless_rules():
        for length in filter(None, lengths):
            way = Way("model", length, rule)
            yield Task(
                "self-draft",
                f"draft length {length}, rule {rule}",
                partial(all_accepted, subject, way, (GREEDY, SAMPLED, FILTERED, PENALISED)),
            )


def all_accepted(subject: Subject, way: Way, laws: Sequence[Wanted]) -> Finding:
    """Drafts with the target itself: nothing may be rejected."""
    itself = subject.but(draft=subject.model.target, change=subject.change)
    drafted = accepted = 0
    for wanted in laws:
        for number, question in enumerate(subject.questions[:2]):
            for turn, (request, step) in enumerate(itself.steps(question, way, wanted)):
                if request.round.fault:
                    return Finding(False, f"the drafter was dropped: {request.round.fault}")
                drafted, accepted = drafted + step.drafted, accepted + step.accepted
                if step.accepted < step.drafted and not step.finish:
                    return Finding(
                        False,
                        f"prompt {number}, round {turn}: {step.accepted} of {step.drafted} accepted ({wanted})",
                    )
    return Finding(
        drafted > 0, f"{accepted} of {drafted} accepted, none rejected (the rest was cut by the text's end)"
    )
