"""The exact law of what a rule emits: every outcome of its randomness, in rational arithmetic.

`Uniforms` hands out one uniform for each key and never a number: a comparison cuts the key's interval in two and the
run continues on one side. `law_of` runs an experiment once for each way the cuts can fall. So a key read twice is the
same uniform twice, as it is with counter-based noise, and a rule that reuses randomness is found out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from outpace.errors import UsageError
from outpace.types import Draft, Noise, Rule, Verdict

Probs: TypeAlias = Any
"""[V] of Fraction, as a NumPy array of objects."""
Tokens: TypeAlias = tuple[int, ...]
Table: TypeAlias = Callable[[Tokens], Probs]
"""The law of the next token, given the ones before it."""
Outcome = TypeVar("Outcome", bound=Hashable)
Law: TypeAlias = dict[Outcome, Fraction]

ZERO, ONE = Fraction(0), Fraction(1)


class Uniforms:
    """One run: `script` says on which side of each cut the run goes; what lies beyond it goes below."""

    def __init__(self, script: Sequence[bool]) -> None:
        self._script = list(script)
        self._intervals: dict[Hashable, tuple[Fraction, Fraction]] = {}
        self.taken: list[bool] = []

    def below(self, key: Hashable, threshold: Fraction) -> bool:
        """Returns whether the key's uniform is below the threshold."""
        low, high = self._intervals.get(key, (ZERO, ONE))
        if threshold <= low:
            return False
        if threshold >= high:
            return True
        turn = len(self.taken)
        below = self._script[turn] if turn < len(self._script) else True
        self.taken.append(below)
        self._intervals[key] = (low, threshold) if below else (threshold, high)
        return below

    def choose(self, key: Hashable, probs: Probs) -> int:
        """Returns the token that the key's uniform draws: the first x with u S < C(x), C the cumulative sum."""
        total, sum_below = Fraction(sum(probs)), ZERO
        for token, p in enumerate(probs):
            sum_below += Fraction(p)
            if p > 0 and self.below(key, sum_below / total):
                return token
        raise UsageError(f"probabilities must have a positive sum, got {total}")

    @property
    def weight(self) -> Fraction:
        """The probability of this run."""
        product = ONE
        for low, high in self._intervals.values():
            product *= high - low
        return product


def law_of(experiment: Callable[[Uniforms], Outcome]) -> Law[Outcome]:
    """Returns the probability of each outcome; they sum to exactly 1."""
    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    scripts: list[list[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        uniforms = Uniforms(script)
        law[experiment(uniforms)] += uniforms.weight
        scripts += [[*uniforms.taken[:turn], False] for turn in range(len(script), len(uniforms.taken))]
    if sum(law.values()) != 1:
        raise ArithmeticError(f"the outcomes of an experiment must sum to 1, got {sum(law.values())}")
    return dict(law)


class ExactNoise:
    """`types.Noise` over the uniforms of one run, keyed as `RoundNoise` is."""

    def __init__(self, uniforms: Uniforms, committed: int) -> None:
        self._uniforms = uniforms
        self._committed = committed

    def accept(self, purpose: int, node: int, p: Fraction, q: Fraction) -> bool:
        """Returns True with probability min(1, p / q): whether u q < p."""
        if q == 0:
            return p > 0
        return self._uniforms.below(self._key(purpose, node), Fraction(p) / Fraction(q))

    def categorical(self, purpose: int, node: int, probs: Probs) -> int:
        """Returns a token drawn from `probs`."""
        return self._uniforms.choose(self._key(purpose, node), probs)

    def _key(self, purpose: int, node: int) -> Hashable:
        return (int(purpose), self._committed, node)


class ExactLaw:
    """A law of Fractions whose draw is the plain sampler's at its position."""

    def __init__(self, probs: Probs, uniforms: Uniforms, position: int) -> None:
        self._probs, self._uniforms, self._position = probs, uniforms, position

    def draw(self) -> int:
        """Returns the plain sampler's token."""
        return self._uniforms.choose(("sample", self._position), self._probs)

    def probs(self) -> Probs:
        """Returns the law as it was given."""
        return self._probs


Drafting: TypeAlias = Callable[[Uniforms, Tokens, int], Draft]
"""(uniforms, committed tokens, size) -> a draft; size 0 is an empty one."""
NoiseMaker: TypeAlias = Callable[[Uniforms, int], Noise]
"""(uniforms, tokens committed when the round began) -> its noise."""
Scoring: TypeAlias = Callable[[Table, Tokens, Draft], Sequence[Probs]]
"""(target, committed tokens, draft) -> the laws that the rule is given, row i + 1 after node i."""


def scored(target: Table, committed: Tokens, draft: Draft) -> list[Probs]:
    """Returns [N+1] the target's law after each node, given that node's own path."""
    return [target(committed + tuple(draft.tokens[i] for i in draft.path_to(node))) for node in range(-1, len(draft))]


def play(
    rule: Rule,
    target: Table,
    drafting: Drafting,
    size: int,
    uniforms: Uniforms,
    committed: Tokens = (),
    noise: NoiseMaker = ExactNoise,
    scoring: Scoring = scored,
) -> tuple[Draft, Verdict]:
    """Returns one round's draft and verdict."""
    draft = drafting(uniforms, committed, size)
    depths = [len(draft.path_to(node)) for node in range(-1, len(draft))]
    rows = scoring(target, committed, draft)
    laws = [ExactLaw(p, uniforms, len(committed) + depth) for p, depth in zip(rows, depths, strict=True)]
    return draft, rule(draft, laws, noise(uniforms, len(committed)))


def emitted(
    rule: Rule,
    target: Table,
    drafting: Drafting,
    sizes: Sequence[int],
    horizon: int,
    noise: NoiseMaker = ExactNoise,
    scoring: Scoring = scored,
) -> Law[Tokens]:
    """Returns the law of the first `horizon` tokens: rounds of drafts of these sizes, then the target alone."""

    def experiment(uniforms: Uniforms) -> Tokens:
        tokens: Tokens = ()
        for size in sizes:
            draft, verdict = play(rule, target, drafting, size, uniforms, tokens, noise, scoring)
            tokens += verdict.tokens(draft)
        return tokens[:horizon]

    law: dict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, mass in law_of(experiment).items():
        for whole, share in joint(target, horizon, tokens).items():
            law[whole] += mass * share
    return dict(law)


def joint(target: Table, horizon: int, start: Tokens = ()) -> Law[Tokens]:
    """Returns the target's own law of `horizon` tokens that begin with `start`, possible ones only."""
    law: Law[Tokens] = {start: ONE}
    for _ in range(len(start), horizon):
        law = {
            (*tokens, token): mass * p
            for tokens, mass in law.items()
            for token, p in enumerate(target(tokens))
            if p > 0
        }
    return law


def accepted_mean(rule: Rule, target: Table, drafting: Drafting, size: int) -> Fraction:
    """Returns the expected number of draft tokens that one round accepts; one more is committed."""
    law = law_of(lambda uniforms: len(play(rule, target, drafting, size, uniforms)[1].path))
    return sum((count * mass for count, mass in law.items()), ZERO)


def coupled_mean(target: Table, draft: Table, length: int, tokens: Tokens = ()) -> Fraction:
    """Returns the expected number of a chain's tokens that `coupled` accepts, under Gumbel noise.

    Both draw token v with probability 1 / sum_w max(p_w / p_v, q_w / q_v), a race of exponentials, and the noise of
    each position is its own; `ExactLaw.draw` couples by one uniform instead, which has the law but not this mean.
    """
    if length == 0:
        return ZERO
    p, q, mean = target(tokens), draft(tokens), ZERO
    for token, (p_v, q_v) in enumerate(zip(p, q, strict=True)):
        if p_v > 0 and q_v > 0:
            ratios = (max(Fraction(p_w) / p_v, Fraction(q_w) / q_v) for p_w, q_w in zip(p, q, strict=True))
            mean += (1 + coupled_mean(target, draft, length - 1, (*tokens, token))) / sum(ratios)
    return mean


def total_variation(a: Mapping[Outcome, Fraction], b: Mapping[Outcome, Fraction]) -> Fraction:
    """Returns half the sum of |a - b|."""
    return sum((abs(a.get(x, ZERO) - b.get(x, ZERO)) for x in a.keys() | b.keys()), ZERO) / 2


def random_table(seed: int, vocab: int = 3, zeros: float = 0.0, levels: int = 7) -> Table:
    """Returns a table of laws that depend on every token before; few levels make ties."""

    @cache
    def probs(tokens: Tokens) -> Probs:
        chance = random.Random(f"{seed} {tokens}")
        masses = [0 if chance.random() < zeros else chance.randint(1, levels) for _ in range(vocab)]
        if not any(masses):
            masses[chance.randrange(vocab)] = 1
        return fractions(masses)

    return probs


def fractions(masses: Sequence[int]) -> Probs:
    """Returns masses / their sum, as an array of Fraction."""
    return np.array([Fraction(mass, sum(masses)) for mass in masses], dtype=object)


def one_hot(token: int, vocab: int = 3) -> Probs:
    """Returns the law that is 1 on the token."""
    return fractions([int(x == token) for x in range(vocab)])
