"""Any smaller model of the same vocabulary drafts, with its own cache, on any engine.

The session's cache holds a prefix of the request's tokens and of its own guesses. Before a round it is rewound to
what the target committed of them, and what it has not seen yet is scored together with the first guess: after a
full acceptance that is the last guess and the bonus, so no pass is spent on catching up. Where the budget has a least
path probability, the next guess waits for the confidence of those before it: of laws, so what is drawn stays drawn.
Where it has prices and room for more nodes than levels, the runner-up of an unsure guess stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from array_api_compat import array_namespace, device

from outpace.confidence import largest_probability, without
from outpace.errors import ContextOverflow, UsageError
from outpace.estimates import Calibration
from outpace.types import (
    EMPTY,
    Array,
    Budget,
    Context,
    Draft,
    Drafter,
    DraftSession,
    Law,
    LawMaker,
    Prompt,
    Scores,
    Step,
    Target,
    TargetSession,
    Verdict,
)

SLICE = 16
"""Tokens in one pass at most when the drafter catches up after rounds without drafts."""

RUNNER_UP = 0.45
"""Share of a guess's errors in which its runner-up is right: of 188 and 267 errors of a 0.5B beside its 1.5B 0.42 at
temperature 0 and 0.37 at 1, where their noise is one; most where the guess has a chance of 0.4 to 0.8."""


@runtime_checkable
class Following(Protocol):
    """A target that can go on with its own likeliest tokens without asking anyone in between, as on a GPU."""

    def follow(self, session: TargetSession, draft: Draft, count: int, below: int) -> list[int]:
        """Returns `count` tokens with the largest logits, the first after a chain; the cache holds all but the last.

        Ids from `below` on are not taken.
        """
        ...


class ModelSession:
    """One request. `cache` is the model's; its tokens are a prefix of `committed` + `guesses`."""

    def __init__(self, model: Target, prompt: Prompt, laws: LawMaker) -> None:
        self.model = model
        self.source = prompt.source
        self.laws = laws
        self.committed = list(prompt.ids)
        self.guesses: list[int] = []
        self.guess_laws: list[Law | None] = []
        self.runners_up: list[tuple[int, int]] = []  # (place among the guesses, token that stands beside it)
        self.pending: Draft = EMPTY
        self.cache: TargetSession | None = None
        self._agreed = 0
        self.chances: list[float] = []  # of each guess given the ones before it, where the budget asks for them
        self._calibration = Calibration()

    def begin(self, depth: int) -> None:
        """Makes the cache hold a prefix of what is committed, and `pending` the rest after its last token."""
        if len(self.committed) + depth > self.model.max_length:
            raise ContextOverflow(
                f"the draft model's context holds {self.model.max_length} tokens, "
                f"the text has {len(self.committed)} and {depth} were to be drafted"
            )
        self._clear()
        if self.cache is None:
            self.cache, _ = self.model.open(Prompt(tuple(self.committed), self.source))
        else:
            known = min(self.cache.length, self._agreed, len(self.committed) - 1)
            self.cache.rewind(known, self.committed[known])
        self._agreed = len(self.committed)
        unseen = self.committed[self.cache.length + 1 :]
        while len(unseen) >= SLICE:
            self.model.score_many([(self.cache, chunk := Draft.chain(unseen[: SLICE - 1]))])
            self.cache.commit(chunk, Verdict(tuple(range(SLICE - 1)), unseen[SLICE - 1]))
            unseen = unseen[SLICE:]
        self.pending = Draft.chain(unseen)

    def _clear(self) -> None:
        self.guesses, self.guess_laws, self.chances, self.runners_up = [], [], [], []

    @property
    def opened(self) -> TargetSession:
        """The cache, which `begin` opened."""
        assert self.cache is not None
        return self.cache

    def extend(self, row: Array) -> None:
        """Draws the next guess from the law of the last row [V], and commits what that row saw to the cache."""
        law = self.laws.after(row, self.committed, self.guesses)
        token = law.draw()
        self.opened.commit(self.pending, Verdict(tuple(range(len(self.pending))), token))
        self.pending = EMPTY
        self.guesses.append(token)
        self.guess_laws.append(law)

    def follow(self, model: Following, count: int, below: int) -> None:
        """Takes the likeliest token `count` times; what that took stays in the cache."""
        self.guesses = model.follow(self.opened, self.pending, count, below)
        self.guess_laws = [None] * count
        self.pending = EMPTY

    def judge(self, row: Array) -> None:
        """Notes how likely the guess from this row [V] is right: as the row's largest probability says."""
        self.chances.append(self._calibration(largest_probability(row)))

    def consider_runner_up(self, row: Array, prices: Sequence[float]) -> None:
        """Puts what the last guess's row [V] would have drawn else beside it, where that is worth a node's price."""
        node = len(self.guesses) + len(self.runners_up)
        *before, last = self.chances
        if node >= len(prices) or math.prod(before) * (1.0 - last) * RUNNER_UP < prices[node]:
            return
        *path, guess = self.guesses
        with without(row, guess) as rest:
            token = self.laws.after(rest, self.committed, path).draw()
        if token != guess:
            self.runners_up.append((len(path), token))

    def draft(self, nodes: int) -> Draft:
        """Returns the chain of guesses, and after it the runners-up that there is room for."""
        beside = self.runners_up[: nodes - len(self.guesses)]
        if not beside:
            return Draft.chain(self.guesses, self.guess_laws)
        places, tokens = zip(*beside, strict=True)
        return Draft(
            (*self.guesses, *tokens),
            (*range(-1, len(self.guesses) - 1), *(place - 1 for place in places)),
            (*self.guess_laws, *(None for _ in tokens)),
        )

    def worth_going_on(self, least: float) -> bool:
        """Returns whether all guesses so far are right with at least this probability."""
        return math.prod(self.chances) >= least

    def observe(self, step: Step, scores: Scores) -> None:
        right = 0
        for guess, token in zip(self.guesses, step.tokens, strict=False):
            if guess != token:
                break
            right += 1
        self._agreed += right
        if self.chances:
            self._calibration.observe(right, sum(self.chances[: right + 1]))
        self.committed += step.tokens
        self._clear()

    def close(self) -> None:
        if self.cache is not None:
            self.cache.close()
            self.cache = None


class ModelDrafter:
    """Drafts with `model`, whose tokens must be the target's; its head may be padded to another size.

    vocab_size: tokens of the target's head. Ids beyond it are cut off before a token is drawn.
    """

    drafts_trees = False  # alone: a member of a mixture, whose budgets have prices, puts runners-up beside its chain
    self_limiting = False
    taps: tuple[int, ...] = ()

    def __init__(self, model: Target, vocab_size: int, name: str = "model") -> None:
        self.name = name
        self.model = model
        self.vocab_size = vocab_size
        self.weight_bytes = model.weight_bytes

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        # A relative with an encoder of the same shape, or without one of its own, takes the target's encoder output.
        takes = getattr(self.model, "takes_encoded", None)
        if takes is not None and context.encoded is not None and takes(context.encoded):
            prompt = Prompt(prompt.ids, context.encoded)
        return ModelSession(self.model, prompt, laws)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        sessions = [cast(ModelSession, session) for session, _ in work]
        drawing = [(session, budget) for session, (_, budget) in zip(sessions, work, strict=True) if _room(budget)]
        for session, budget in drawing:
            session.begin(_room(budget))
        if len(drawing) == 1 and isinstance(self.model, Following):
            [(session, budget)] = drawing
            if session.laws.takes_argmax and not budget.min_path_probability:
                session.follow(self.model, _room(budget), self.vocab_size)
                drawing = []
        while drawing:
            scores = self.model.score_many([(session.opened, session.pending) for session, _ in drawing])
            for (session, budget), score in zip(drawing, scores, strict=True):
                row, branches = self._fitted(score.logits[-1]), _branches(session, budget)
                if budget.min_path_probability or branches:
                    session.judge(row)
                session.extend(row)
                if branches:
                    session.consider_runner_up(row, budget.prices)
            drawing = [
                (session, budget)
                for session, budget in drawing
                if len(session.guesses) < _room(budget) and session.worth_going_on(budget.min_path_probability)
            ]
        return [
            session.draft(budget.nodes) if _room(budget) else EMPTY
            for session, (_, budget) in zip(sessions, work, strict=True)
        ]

    def _fitted(self, row: Array) -> Array:
        """Returns [vocab_size] the row cut to the target's head, or padded with -inf."""
        missing = self.vocab_size - row.shape[0]
        if missing <= 0:
            return row[: self.vocab_size]
        xp = array_namespace(row)
        return xp.concat([row, xp.full((missing,), -xp.inf, dtype=row.dtype, device=device(row))])


def _room(budget: Budget) -> int:
    return min(budget.depth, budget.nodes)


def _branches(session: ModelSession, budget: Budget) -> bool:
    """Whether runners-up may be proposed: where they follow from the law and what is known, so that none is drawn."""
    known = session.laws.takes_argmax or session.laws.shared_noise is not None
    return known and bool(budget.prices) and not budget.chains


def make(target: Target, draft: Target | None = None) -> Drafter:
    if draft is None:
        raise UsageError("drafter 'model' needs a draft model: name one with draft=... (--draft on the command line)")
    return ModelDrafter(draft, target.vocab_size)


@runtime_checkable
class Reducible(Protocol):
    """A target that can stand beside itself at less cost, as its own draft."""

    def early_exit(self) -> Target:
        """Returns its first layers with its own output matrix."""
        ...

    def at_fewer_bits(self) -> Target:
        """Returns it with rounded weights. Raises UsageError where they are as small already."""
        ...


def make_early_exit(target: Target, draft: Target | None = None) -> Drafter:
    """Returns a drafter that stops after the target's first layers (LayerSkip, arXiv 2404.16710).

    It has keys and values of its own. To go on from its last layer would save no reading: the last guess has passed
    no layer when it is scored, and the pass that takes it through the first layers reads all their weights again.
    """
    return ModelDrafter(_reducible(target, "early_exit").early_exit(), target.vocab_size, "early_exit")


def make_quantized(target: Target, draft: Target | None = None) -> Drafter:
    """Returns a drafter that is the target with its weights at 4.5 bits (as ML-SpecQD, arXiv 2503.13565)."""
    reducible = _reducible(target, "quantized")
    try:
        packed = reducible.at_fewer_bits()
    except UsageError as error:
        raise UsageError(f"drafter 'quantized' needs a target of larger weights: {error}") from None
    return ModelDrafter(packed, target.vocab_size, "quantized")


def _reducible(target: Target, drafter: str) -> Reducible:
    if not isinstance(target, Reducible):
        raise UsageError(f"drafter {drafter!r} needs a target on engine 'native', got {target.engine!r}")
    return target
