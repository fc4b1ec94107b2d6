"""What happened inside each round, as the papers tell it: pure data, for the terminal, a page or JSON to render.

Letters as in Leviathan et al. 2023: p is the target's law, q the law that a guess was drawn from, r the uniform
that decides between them (a guess x is accepted when r q(x) < p(x)). Under a rule that shares noise there is no r:
the target draws a token of its own, and a guess is accepted when it is that token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError
from outpace.noise import Purpose, RoundNoise
from outpace.result import origins
from outpace.rules.quantities import excess, overlap, residual
from outpace.types import Draft, Observation, Rule, Step

TOLD = ("coupled", "rejection")
"""The rules whose rounds a trace can tell: the others test more than one guess at a time, or keep another law."""

SHOWN = 5
"""Tokens of a law that a trace keeps."""


class Outcome(StrEnum):
    """What became of a guess."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNREACHED = "unreached"


class Ending(StrEnum):
    """Where a round's last token came from. stopped: it was an accepted guess, and the text ended there."""

    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token and its probability."""

    token: int
    probability: float


@dataclass(frozen=True, slots=True)
class Guess:
    """One node of a draft. node: its index in the draft; depth: 1 for a child of the root.

    p, q: its probability under both laws; q is 1 for a guess made without randomness. overlap: sum min(p, q), the
    chance of acceptance before the guess was drawn. r: the uniform it was tested with, where the rule tests and got
    that far. drawn: the target's own draw at its place, where the rule draws and got that far.
    """

    node: int
    parent: int
    depth: int
    token: int
    p: float
    q: float
    overlap: float
    r: float | None
    drawn: int | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TraceRound:
    """One round. start: tokens committed before it; number: from 1.

    last: the token that the round ended with, last_p its probability under the target's law. law: the top of the
    law that `last` was drawn from, "residual" or "target" by `law_name`. rejected_mass: 1 - sum min(p, q) at the
    place of a correction under a rule that tests (their product over siblings), else None. origins: how each of
    `tokens` came.
    """

    number: int
    start: int
    guesses: tuple[Guess, ...]
    ending: Ending
    last: int
    last_p: float
    law_name: str
    law: tuple[Candidate, ...]
    rejected_mass: float | None
    tokens: tuple[int, ...]
    origins: tuple[str, ...]
    finish: str | None
    draft_seconds: float
    score_seconds: float
    verify_seconds: float

    @property
    def accepted(self) -> int:
        """Guesses that were committed."""
        return sum(guess.outcome is Outcome.ACCEPTED for guess in self.guesses)

    def record(self) -> dict[str, object]:
        """Returns the round as JSON has it."""
        return asdict(self)


class Tracer:
    """An observer that keeps a TraceRound of every round, and hands each on as it comes.

    Cost: it asks every node for its whole law, which plain generation never does. Raises UsageError for a rule that
    is not of TOLD.
    """

    def __init__(
        self, rule: Rule, seed: int, on_round: Callable[[TraceRound], None] = lambda one: None, choice: int = 0
    ) -> None:
        check_told(rule.name)
        self.rounds: list[TraceRound] = []
        self._rule = rule
        self._seed = seed
        self._choice = choice
        self._on_round = on_round

    def __call__(self, seen: Observation) -> None:
        one = trace_round(seen, self._rule, self._seed, number=len(self.rounds) + 1, choice=self._choice)
        self.rounds.append(one)
        self._on_round(one)


def check_told(rule: str) -> None:
    """Raises UsageError for the name of a rule whose rounds cannot be told."""
    if rule not in TOLD:
        raise UsageError(f"rounds can be shown of the rules {' and '.join(TOLD)}, got {rule!r}")


def trace_round(seen: Observation, rule: Rule, seed: int, number: int = 1, choice: int = 0) -> TraceRound:
    """Returns what happened in a round, from what its observer sees."""
    step, draft = seen.step, seen.step.draft
    probs = [_vector(law.probs()) for law in seen.laws]
    drawn_from = [_draft_vector(draft, node, len(probs[0])) for node in range(draft.verified)]
    path, stopped = _accepted_path(step)
    leaf = path[-1] if path else -1
    noise = RoundNoise(seed, choice, len(seen.committed))
    guesses = []
    for node in range(draft.verified):
        token, parent = draft.tokens[node], draft.parents[node]
        p, q = probs[parent + 1], drawn_from[node]
        reached = parent == -1 or parent in path
        taken = next((child for child in draft.children(parent) if child in path), node)
        if (stopped and parent == leaf) or (taken < node and not rule.shares_noise):
            reached = False  # the text had ended, or an earlier sibling was accepted
        outcome = Outcome.ACCEPTED if node in path else Outcome.REJECTED if reached else Outcome.UNREACHED
        guesses.append(
            Guess(
                node=node,
                parent=parent,
                depth=len(draft.path_to(node)),
                token=token,
                p=float(p[token]),
                q=float(q[token]),
                overlap=float(overlap(p, q)),
                r=noise.uniform(Purpose.ACCEPT, node) if reached and not rule.shares_noise else None,
                drawn=seen.laws[parent + 1].draw() if reached and rule.shares_noise else None,
                outcome=outcome,
            )
        )
    ending = _ending(draft, leaf, stopped)
    # A stopped round's last token was drawn one place before the end of the path.
    place = draft.parents[leaf] if stopped else leaf
    law, rejected_mass = probs[place + 1], None
    tests = ending is Ending.CORRECTION and not rule.shares_noise
    if tests:
        rejected_mass = 1.0
        for sibling in draft.children(leaf):
            q = drawn_from[sibling]
            rejected_mass *= float(np.sum(excess(law, q)))
            law = residual(law, q)
    return TraceRound(
        number=number,
        start=len(seen.committed),
        guesses=tuple(guesses),
        ending=ending,
        last=step.tokens[-1],
        last_p=float(probs[place + 1][step.tokens[-1]]),
        law_name="residual" if tests else "target",
        law=top(law),
        rejected_mass=rejected_mass,
        tokens=step.tokens,
        origins=origins(step),
        finish=step.finish,
        draft_seconds=step.seconds.draft,
        score_seconds=step.seconds.score,
        verify_seconds=step.seconds.verify,
    )


def top(probs: npt.NDArray[np.floating], count: int = SHOWN) -> tuple[Candidate, ...]:
    """Returns the likeliest tokens of `probs` [V], at most `count` and none of probability 0."""
    count = min(count, len(probs))
    likeliest = np.argpartition(-probs, count - 1)[:count]
    ordered = sorted(likeliest.tolist(), key=lambda token: (-probs[token], token))
    return tuple(Candidate(token, float(probs[token])) for token in ordered if probs[token] > 0)


def _accepted_path(step: Step) -> tuple[list[int], bool]:
    """Returns the accepted nodes, and whether the last of them is where the text ended.

    A cut makes the last kept guess the step's `next_token`; here it counts as the accepted guess that it was.
    """
    path = list(step.verdict.path)
    leaf = path[-1] if path else -1
    if step.finish is not None:
        for child in step.draft.children(leaf):
            if step.draft.tokens[child] == step.verdict.next_token:
                return [*path, child], True
    return path, False


def _ending(draft: Draft, leaf: int, stopped: bool) -> Ending:
    if stopped:
        return Ending.STOPPED
    if draft.verified == 0:
        return Ending.PLAIN
    return Ending.CORRECTION if draft.children(leaf) else Ending.BONUS


def _vector(probs: object) -> npt.NDArray[np.floating]:
    return np.asarray(probs)


def _draft_vector(draft: Draft, node: int, vocab_size: int) -> npt.NDArray[np.floating]:
    """Returns [V] the law that a node was drawn from, at the target's size: a padded head's rows may differ."""
    vector = np.zeros(vocab_size)
    law = draft.laws[node]
    if law is None:
        vector[draft.tokens[node]] = 1.0
    else:
        probs = _vector(law.probs())[:vocab_size]
        vector[: len(probs)] = probs
    return vector
