"""The idea of speculative sampling on two laws over a handful of tokens: exact figures beside sampled ones.

Letters as in Leviathan et al. 2023: p is the target's law, q the draft's.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError
from outpace.noise import Purpose, RoundNoise
from outpace.rules import RULES, excess, residual
from outpace.sampling import Sampler, SamplingParams
from outpace.trace import TOLD, TraceRound, trace_round
from outpace.types import Array, Draft, Law, Observation, Rule, Scores, Step, Timing, Verdict

Float64: TypeAlias = npt.NDArray[np.float64]

MAX_TOKENS = 26
LONGEST_DRAFT = 16
MOST_SAMPLES, MOST_ROUNDS = 10_000_000, 100_000
SUM_TOLERANCE = 1e-6
"""How far a law that was typed in may be from summing to 1; it is then divided by its sum."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token. accepted + corrected = p, for every lossless rule: that is the whole proof.

    accepted: probability that it is emitted as an accepted guess, min(p, q) under `rejection`; corrected: that it is
    emitted as the correction, p less that. residual: the law of a correction, norm(max(0, p - q)).
    sampled_*: the fraction of the sampled rounds.
    """

    name: str
    p: float
    q: float
    accepted: float
    corrected: float
    residual: float
    sampled_accepted: float
    sampled_corrected: float

    @property
    def emitted(self) -> float:
        """The probability that it is emitted at all; equals p."""
        return self.accepted + self.corrected

    @property
    def sampled(self) -> float:
        return self.sampled_accepted + self.sampled_corrected


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one guess leads to. total: the sums of the rows; its `accepted` is the chance that a guess is accepted.

    standard_error: the largest that a sampled frequency can have, 1 / (2 sqrt(samples)). largest_error: the largest
    distance of a sampled frequency from its p. rounds: a few rounds in full.
    """

    rule: str
    samples: int
    seed: int
    rows: tuple[TokenRow, ...]
    total: TokenRow
    standard_error: float
    largest_error: float
    rounds: tuple[TraceRound, ...]

    def record(self) -> dict[str, object]:
        """Returns the explanation as JSON has it."""
        return asdict(self)


def explain(
    p: Sequence[float],
    q: Sequence[float],
    *,
    rule: str = "rejection",
    names: Sequence[str] | None = None,
    samples: int = 20_000,
    seed: int = 0,
    rounds: int = 3,
    draft_length: int = 2,
) -> Explanation:
    """Returns exact and sampled frequencies of the token that one guess leads to, and a few rounds in full.

    The sampled rounds run the real rule. Raises UsageError for laws that are none, or do not match.
    """
    if rule not in TOLD:
        raise UsageError(f"rule must be one of {', '.join(TOLD)}, got {rule!r}")
    if not 1 <= samples <= MOST_SAMPLES:
        raise UsageError(f"samples must be in [1, {MOST_SAMPLES}], got {samples}")
    if not 0 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"rounds must be in [0, {MOST_ROUNDS}], got {rounds}")
    if not 1 <= draft_length <= LONGEST_DRAFT:
        raise UsageError(f"draft_length must be in [1, {LONGEST_DRAFT}], got {draft_length}")
    target, draft = _law("p", p), _law("q", q)
    if len(target) != len(draft):
        raise UsageError(f"p and q must have one entry a token each, got {len(target)} and {len(draft)}")
    if names is None:
        names = [chr(ord("a") + i) for i in range(len(target))]
    elif len(names) != len(target):
        raise UsageError(f"there must be one name a token, got {len(names)} names for {len(target)} tokens")
    accepted = _accepted(target, draft, rule)
    counts = _sample(target, draft, RULES[rule], samples, random.Random(seed))
    frequencies = {key: count / samples for key, count in counts.items()}
    left = residual(target, draft)
    rows = tuple(
        TokenRow(
            name=name,
            p=float(target[i]),
            q=float(draft[i]),
            accepted=float(accepted[i]),
            corrected=float(target[i] - accepted[i]),
            residual=float(left[i]),
            sampled_accepted=frequencies.get((i, True), 0.0),
            sampled_corrected=frequencies.get((i, False), 0.0),
        )
        for i, name in enumerate(names)
    )
    return Explanation(
        rule=rule,
        samples=samples,
        seed=seed,
        rows=rows,
        total=TokenRow("sum", *(sum(column) for column in zip(*(astuple(row)[1:] for row in rows), strict=True))),
        standard_error=0.5 / math.sqrt(samples),
        largest_error=max(abs(row.sampled - row.p) for row in rows),
        rounds=tuple(_rounds(target, draft, RULES[rule], seed, rounds, draft_length)),
    )


def _law(name: str, probs: Sequence[float]) -> Float64:
    law = np.asarray(probs, dtype=np.float64)
    if not 2 <= len(law) <= MAX_TOKENS:
        raise UsageError(f"{name} must have 2 to {MAX_TOKENS} probabilities, got {len(law)}")
    if not (law >= 0).all() or not abs(law.sum() - 1) <= SUM_TOLERANCE:
        raise UsageError(
            f"{name} must be non-negative and sum to 1, got sum {law.sum():.6g} and least {law.min():.6g}"
        )
    return np.asarray(law / law.sum(), dtype=np.float64)


def _accepted(p: Float64, q: Float64, rule: str) -> Float64:
    """Returns [V] the probability that each token is emitted as an accepted guess.

    `coupled`: both draws are token v with probability 1 / sum_w max(p_w / p_v, q_w / q_v), a race of exponentials
    (`theory.agreement.coupled_acceptance` sums it).
    """
    if not RULES[rule].shares_noise:
        return np.asarray(p - excess(p, q), dtype=np.float64)
    accepted = np.zeros_like(p)
    for v in np.flatnonzero((p > 0) & (q > 0)):
        accepted[v] = 1 / np.maximum(p / p[v], q / q[v]).sum()
    return accepted


class _Quick:
    """The noise of many independent rounds; faster than the counter-based one, which is for texts."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def uniform(self, purpose: int, node: int) -> float:
        return self._source.random()

    def accept(self, purpose: int, node: int, p: float, q: float) -> bool:
        return self._source.random() * q < p

    def categorical(self, purpose: int, node: int, probs: Array) -> int:
        return self._source.choices(range(len(probs)), probs)[0]


@dataclass(frozen=True, slots=True)
class _Table:
    """A law that is a row of a table; `gumbel` is the noise that it draws with."""

    table: Float64
    log_table: Float64
    gumbel: Float64

    def draw(self) -> int:
        return int(np.argmax(self.log_table + self.gumbel))

    def probs(self) -> Float64:
        return self.table


def _sample(p: Float64, q: Float64, rule: Rule, samples: int, source: random.Random) -> Counter[tuple[int, bool]]:
    """Returns how often the first token of a round with one guess was (token, accepted)."""
    noise, counts = _Quick(source), Counter[tuple[int, bool]]()
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    for _ in range(samples):
        gumbel = np.array([-math.log(source.expovariate(1.0)) for _ in p]) if rule.shares_noise else p
        target, drafter = _Table(p, log_p, gumbel), _Table(q, log_q, gumbel)
        guess = drafter.draw() if rule.shares_noise else noise.categorical(Purpose.DRAFT, 0, q)
        draft = Draft.chain([guess], [drafter])
        verdict = rule(draft, [target, target], noise)
        counts[verdict.tokens(draft)[0], bool(verdict.path)] += 1
    return counts


def _rounds(p: Float64, q: Float64, rule: Rule, seed: int, count: int, draft_length: int) -> list[TraceRound]:
    """Returns rounds of chains under the two laws, with the sampler and the noise that real texts have."""
    params = SamplingParams(temperature=1.0)
    target = Sampler(params, seed)
    drafter = Sampler(params, seed, shares_noise=rule.shares_noise)
    with np.errstate(divide="ignore"):
        p_logits, q_logits = (np.log(law).astype(np.float32) for law in (p, q))
    rounds: list[TraceRound] = []
    committed: list[int] = []
    for number in range(1, count + 1):
        tokens: list[int] = []
        laws: list[Law] = []
        for _ in range(draft_length):
            law = drafter.after(q_logits, committed, tokens)
            laws.append(law)
            tokens.append(law.draw())
        draft = Draft.chain(tokens, laws)
        scores = Scores(np.tile(p_logits, (draft_length + 1, 1)))
        target_laws = target(scores, committed, draft)
        verdict: Verdict = rule(draft, target_laws, RoundNoise(seed, committed=len(committed)))
        step = Step(draft, verdict, verdict.tokens(draft), None, Timing())
        rounds.append(trace_round(Observation(step, target_laws, scores, committed), rule, seed, number))
        committed.extend(step.tokens)
    return rounds
