"""A target whose next-token laws are a table, and drafters of the enumeration on it: mutants in the real loop."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np

from outpace.audit.broken import SameEveryRound
from outpace.audit.enumerate import (
    Drafting,
    ExactNoise,
    Law,
    Scoring,
    Table,
    Tokens,
    Uniforms,
    emitted,
    joint,
    scored,
)
from outpace.audit.loops import Loop, NoiseOf, right_noise
from outpace.audit.mutants import Mutant
from outpace.audit.recorded import RecordedSession
from outpace.noise import RoundNoise
from outpace.rules.tables import TableLaw
from outpace.sampling import Sampler
from outpace.types import (
    EMPTY,
    Array,
    Budget,
    Context,
    Draft,
    DraftSession,
    LawMaker,
    Noise,
    Prompt,
    Scores,
    Step,
    TargetSession,
)
from outpace.types import Law as LawProtocol

PROMPT: Tokens = (0,)
"""A target needs a token to begin with; tables do not see it."""


class TableTarget:
    """A target whose law after the prompt's one token is `table`'s."""

    name, engine, threads = "table", "table", 1
    scores_trees, bit_exact = True, True
    hidden_layers = weight_bytes = 0
    eos_ids: frozenset[int] = frozenset()
    max_length = 1 << 20

    def __init__(self, table: Table) -> None:
        self.vocab_size = len(table(()))
        self._table = table
        self._rows: dict[Tokens, Array] = {}

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        return RecordedSession(prompt.ids), Context()

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        return [self._scores(cast(RecordedSession, session).tokens[len(PROMPT) :], draft) for session, draft in work]

    def _scores(self, tokens: Tokens, draft: Draft) -> Scores:
        paths = (tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(-1, len(draft)))
        return Scores(np.stack([self._row(tokens + path) for path in paths]))

    def _row(self, tokens: Tokens) -> Array:
        if tokens not in self._rows:
            with np.errstate(divide="ignore"):
                self._rows[tokens] = np.log(self._table(tokens).astype(np.float64)).astype(np.float32)
        return self._rows[tokens]


class DrawnUniforms(Uniforms):
    """The enumeration's uniforms as numbers of one seed."""

    def __init__(self, seed: str) -> None:
        super().__init__(())
        self._chance = random.Random(seed)
        self._numbers: dict[Hashable, float] = {}

    def below(self, key: Hashable, threshold: Fraction) -> bool:
        if key not in self._numbers:
            self._numbers[key] = self._chance.random()
        return self._numbers[key] < threshold


@dataclass(slots=True)
class TableSession:
    """The committed tokens of one request."""

    seed: int
    committed: Tokens

    def observe(self, step: Step, scores: Scores) -> None:
        self.committed += step.tokens

    def close(self) -> None:
        pass


class TableDrafter:
    """A drafter of the enumeration: it draws with the numbers of the request's seed."""

    name = "table"
    drafts_trees, self_limiting = True, False
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, drafting: Drafting, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._drafting = drafting

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return TableSession(cast(Sampler, laws).seed, prompt.ids[len(PROMPT) :])

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [self._propose(cast(TableSession, session), budget) for session, budget in work]

    def _propose(self, session: TableSession, budget: Budget) -> Draft:
        if not budget.nodes:
            return EMPTY
        uniforms = DrawnUniforms(f"{session.seed} {session.committed}")
        draft = self._drafting(uniforms, session.committed, budget.nodes)
        laws = tuple(None if law is None else _in_floats(law.probs()) for law in draft.laws)
        return Draft(draft.tokens, draft.parents, laws)


def _in_floats(probs: Array) -> LawProtocol:
    return TableLaw(probs.astype(np.float64))


class Sizes:
    """A controller: so many nodes in each of the first rounds, then none."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._round = 0

    def budget(self, load: int) -> Budget:
        return Budget.chain(self._sizes[self._round] if self._round < len(self._sizes) else 0)

    def observe(self, step: Step) -> None:
        self._round += 1

    def reason(self) -> str:
        return "as the mutant has it"


class ScoredLaws:
    """Laws that a mutant's scoring makes of the table."""

    takes_argmax = False
    temperature = 0.0
    shared_noise = None

    def __init__(self, sampler: Sampler, scoring: Scoring, table: Table) -> None:
        self._sampler, self._scoring, self._table = sampler, scoring, table

    def __call__(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[LawProtocol]:
        return [_in_floats(row) for row in self._scoring(self._table, tuple(committed[len(PROMPT) :]), draft)]

    def draw_all(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[int]:
        return self._sampler.draw_all(scores, committed, draft)

    def after(self, logits: Array, committed: Sequence[int], path: Sequence[int]) -> LawProtocol:
        return self._sampler.after(logits, committed, path)


def _same_every_round(seed: int, committed: int) -> Noise:
    return RoundNoise(seed, 0, 0)


def noise_of(mutant: Mutant) -> NoiseOf | None:
    """Returns the real loop's noise for a mutant's; None where decoding has no such thing."""
    if mutant.noise is ExactNoise:
        return right_noise
    return _same_every_round if mutant.noise is SameEveryRound else None


def loop_of(mutant: Mutant, noise: NoiseOf) -> Loop:
    """Returns the real loop with the mutant's fault, on the table that it is a mutant on."""
    target = TableTarget(mutant.target)
    return Loop(
        target,
        TableDrafter(mutant.drafting, target.vocab_size),
        mutant.rule,
        PROMPT,
        mutant.horizon,
        controller=lambda: Sizes(mutant.sizes),
        noise=noise,
        laws=lambda sampler: (
            sampler if mutant.scoring is scored else ScoredLaws(sampler, mutant.scoring, mutant.target)
        ),
    )


def laws_of(mutant: Mutant) -> tuple[Law[Tokens], Law[Tokens]]:
    """Returns the exact law that a mutant emits, and the target's."""
    law = emitted(
        mutant.rule, mutant.target, mutant.drafting, mutant.sizes, mutant.horizon, mutant.noise, mutant.scoring
    )
    return law, joint(mutant.target, mutant.horizon)
