"""What followed each short sequence of tokens, and the tree of likely continuations that follows from it.

A text is counted into contexts of one to `depth` tokens. A context remembers how often it was continued and its four
most frequent continuations; which of them is likely is asked of all contexts of a place at once, the shortest first
(prediction by partial matching, with a Dirichlet prior from each context to the next longer one):

    p_k(x) = (count_k(x) + prior * p_{k-1}(x)) / (total_k + prior),    p_0 = 0

Counts are only roughly the law, and what no context lists has more of the truth than p leaves for it, the more so the
shorter the match m within the last of the layers is, a request's own text. A place's chances are

    P(x) = s_x / (sum of s + u),    s_x = p(x)^a / e_x^b,    u = c f^m (1 - sum of p)^d,

where e_x is the exponential noise that the token will be drawn with, if that is known: by the law alone it would be
argmax of p(x) / e_x (the Gumbel noise is -ln e_x). `Chances` has a to f, which were fitted. A guide (a draft head)
has its say at the tail: p is then the mean of its law and the counts', which is nearer to the target's own.

This is the readable form; `csrc/contexts.cpp` does the same, to the bit, in a few microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp
from typing import Any, NamedTuple, Protocol

from outpace.noise import Purpose, keyed_exponential

try:
    from outpace import _native
except ImportError:  # built without a C++ compiler
    _native = None  # type: ignore[assignment]

SLOTS = 4
"""Continuations that a context remembers."""

LARGEST = 65535
"""A context whose count of one continuation has reached this is halved."""

MAX_DEPTH = 32

CONTESTANTS = 12
"""Candidates of a place whose noise is looked at."""

LEAST_UNLISTED = 0.001
"""Probability at least, of what no context lists."""


class Chances(NamedTuple):
    """How what is known of a place becomes chances: law, noise, unlisted, familiar, rest are a, b, c, f and d above.

    guide, fade: a guide's law has the weight 1 / (1 + exp(fade m - guide)).
    """

    law: float
    noise: float
    unlisted: float
    familiar: float
    rest: float
    guide: float = 0.0
    fade: float = 0.0


BY_COUNTS = (Chances(1.0, 0.0, 1.2, 0.77, 0.35), Chances(0.8, 0.55, 7.0, 0.77, 0.39))
GUIDED = (Chances(1.45, 0.0, 0.19, 0.85, 0.93, 1.07, 0.235), Chances(1.19, 1.0, 1.99, 0.91, 1.4, 2.44, 0.4))
"""Where tokens are the likeliest ones, and where known noise decides. Fitted by likelihood to answers of SmolLM2-135M
to prompts that no store and no head had seen: 74,926 and 70,669 places, with a guide 12,117 and 25,095. Answers to
prompts of other kinds give nearly the same."""

STORE_PRIOR, OWN_PRIOR = 2.0, 4.0
"""Weights of the shorter context's law, for texts of other requests and for the request's own. Measured on a target's
answers to 60 prompts that were not used for anything else: own priors of 2, 4 and 8 predict 1.83, 1.92 and 1.89 times
plain decoding, and at 4 the path probabilities are right within 0.05 from 0.05 to 1."""


class Counts(Protocol):
    """Contexts of a text that grows, or of many texts."""

    @property
    def depth(self) -> int:
        """The longest context, in tokens."""
        ...

    def feed(self, tokens: Sequence[int], first: int = 0) -> None:
        """Counts tokens[first:], each after up to `depth` tokens before it. Raises ValueError for a negative id."""
        ...

    @property
    def contexts(self) -> int:
        """Different contexts that were continued."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        ...


def new_counts(depth: int) -> Counts:
    """Returns empty counts for contexts of up to `depth` tokens, in [1, MAX_DEPTH]."""
    return ReadableCounts(depth) if _native is None else _native.ContextCounts(depth)


def continuations(
    layers: Sequence[tuple[Counts, float]],
    tail: Sequence[int],
    depth: int,
    prices: Sequence[float],
    width: int,
    odds: float,
    noise: DrawNoise | None = None,
) -> Growth:
    """Returns `grow` of counts that `new_counts` made."""
    own: Any = layers  # all made by new_counts, so all of one kind
    if _native is None:
        return grow(own, tail, depth, prices, width, odds, noise)
    return Growth(*_native.grow(own, tail, depth, prices, width, odds, noise))


class DrawNoise(NamedTuple):
    """The plain sampler's noise from a place on. place: tokens before the one that follows the tail."""

    seed: int
    choice: int
    place: int


@dataclass(slots=True)
class Context:
    """total: how often it was continued; tokens and counts: the most frequent ones, of equals the latest first."""

    total: int = 0
    tokens: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def count(self, token: int) -> None:
        """Counts one continuation; when all slots are taken, the least frequent one pays for a newcomer."""
        self.total += 1
        tokens, counts = self.tokens, self.counts
        if token in tokens:
            place = tokens.index(token)
            counts[place] += 1
        elif len(tokens) < SLOTS:
            place = len(tokens)
            tokens.append(token)
            counts.append(1)
        else:
            place = SLOTS - 1
            counts[place] -= 1
            if counts[place]:
                return
            tokens[place], counts[place] = token, 1
        while place and counts[place - 1] <= counts[place]:
            tokens[place - 1], tokens[place] = tokens[place], tokens[place - 1]
            counts[place - 1], counts[place] = counts[place], counts[place - 1]
            place -= 1
        if counts[0] == LARGEST:
            self._halve()

    def _halve(self) -> None:
        self.total //= 2
        self.tokens = [token for token, count in zip(self.tokens, self.counts, strict=True) if count > 1]
        self.counts = [count // 2 for count in self.counts if count > 1]


class ReadableCounts:
    """Contexts in a dictionary; Counts."""

    def __init__(self, depth: int) -> None:
        if not 1 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth must be in [1, {MAX_DEPTH}], got {depth}")
        self.depth = depth
        self.table: dict[tuple[int, ...], Context] = {}

    def feed(self, tokens: Sequence[int], first: int = 0) -> None:
        if tokens and min(tokens) < 0:
            raise ValueError(f"token ids must be at least 0, got {min(tokens)}")
        for i in range(max(first, 1), len(tokens)):
            for k in range(1, min(self.depth, i) + 1):
                self.table.setdefault(tuple(tokens[i - k : i]), Context()).count(tokens[i])

    @property
    def contexts(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        return sum(300 + 36 * len(key) for key in self.table)


class Growth(NamedTuple):
    """A tree of continuations. probs: [N] of each node given its parent."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: tuple[float, ...]


class Guide(Protocol):
    """What is known of the tail's continuations beside what was counted: a draft head's law, once it has looked."""

    def look(self) -> None: ...

    def likely(self) -> Sequence[int]:
        """Returns the continuations that are worth a thought."""
        ...

    def prob(self, token: int) -> float:
        """Returns the probability of any continuation."""
        ...


def grow(
    layers: Sequence[tuple[ReadableCounts, float]],
    tail: Sequence[int],
    depth: int,
    prices: Sequence[float],
    width: int,
    odds: float = 1.0,
    noise: DrawNoise | None = None,
    guide: Guide | None = None,
) -> Growth:
    """Returns the continuations of `tail` by falling path probability, up to the first that is not worth its price.

    layers: counts, each with the weight of what came before it, the least specific first. depth: longest path.
    prices: [most nodes] the least path probability of each node. width: children of a node, at most SLOTS. odds:
    of what is listed, against what is not, times what they are by the counts alone: a text may be more or less
    predictable. noise:
    what the tokens will be drawn with; None = the probabilities of a place are taken as they are. guide: asked of the
    tail's continuations.
    """
    tokens: list[int] = []
    parents: list[int] = []
    probs: list[float] = []
    depths: list[int] = []
    paths: list[list[int]] = []
    frontier: list[tuple[float, int, int, int, float]] = []
    pushed = 0

    def expand(node: int, path_probability: float) -> None:
        nonlocal pushed
        below = paths[node] if node >= 0 else []
        ranked, match = likely(layers, [*tail, *below])
        if noise is not None:
            ranked = ranked[:CONTESTANTS]
        asked = guide is not None and node < 0
        rule = (GUIDED if asked else BY_COUNTS)[noise is not None]
        if guide is not None and asked:
            ranked = guided(ranked, match, rule, guide)
        place = None if noise is None else noise._replace(place=noise.place + len(below))
        ranked = chances(ranked, match, odds, rule, place)
        for token, prob in ranked[:width]:
            if path_probability * prob >= prices[len(tokens)]:
                heappush(frontier, (-path_probability * prob, pushed, node, token, prob))
                pushed += 1

    if depth > 0 and prices:
        expand(-1, 1.0)
    while frontier:
        negative, _, parent, token, prob = heappop(frontier)
        if -negative < prices[len(tokens)]:
            break
        node = len(tokens)
        tokens.append(token)
        parents.append(parent)
        probs.append(prob)
        depths.append(1 if parent < 0 else depths[parent] + 1)
        paths.append([token] if parent < 0 else [*paths[parent], token])
        if len(tokens) == len(prices):
            break
        if depths[node] < depth:
            expand(node, -negative)
    return Growth(tuple(tokens), tuple(parents), tuple(probs))


def likely(
    layers: Sequence[tuple[ReadableCounts, float]], path: Sequence[int]
) -> tuple[list[tuple[int, float]], int]:
    """Returns (token, probability) by falling probability, of equals the longest context's first; and the longest
    match in the last layer."""
    found: list[tuple[Context, float]] = []
    match = 0
    for counts, prior in layers:
        match = 0
        for k in range(1, min(counts.depth, len(path)) + 1):
            context = counts.table.get(tuple(path[len(path) - k :]))
            if context is None:
                break  # a longer context was not seen either
            found.append((context, prior))
            match = k
    candidates: dict[int, float] = {}
    for context, _ in reversed(found):
        for token in context.tokens:
            candidates.setdefault(token, 0.0)
    for context, prior in found:
        seen = dict(zip(context.tokens, context.counts, strict=True))
        for token, before in candidates.items():
            candidates[token] = (seen.get(token, 0) + prior * before) / (context.total + prior)
    return _by_probability(candidates.items()), match


def guided(ranked: Sequence[tuple[int, float]], match: int, rule: Chances, guide: Guide) -> list[tuple[int, float]]:
    """Returns (token, probability) of these and of what the guide finds likely, by falling probability."""
    guide.look()
    weight = 1.0 / (1.0 + exp(rule.fade * match - rule.guide))
    known = dict(ranked)
    for token in guide.likely():
        known.setdefault(token, 0.0)
    return _by_probability((token, prob + weight * (guide.prob(token) - prob)) for token, prob in known.items())


def chances(
    ranked: Sequence[tuple[int, float]], match: int, odds: float, rule: Chances, noise: DrawNoise | None = None
) -> list[tuple[int, float]]:
    """Returns (token, chance) by falling chance. match: tokens of the longest context in the last layer."""
    waits = [1.0] * len(ranked)
    if noise is not None:
        tokens = [token for token, _ in ranked]
        waits = keyed_exponential(noise.seed, noise.choice, Purpose.SAMPLE, noise.place, 0, tokens).tolist()
    listed = total = 0.0
    strengths: list[float] = []
    for (_, prob), wait in zip(ranked, waits, strict=True):
        listed += prob
        strengths.append(prob**rule.law / wait**rule.noise)
        total += strengths[-1]
    unlisted = rule.unlisted * rule.familiar**match * max(1.0 - listed, LEAST_UNLISTED) ** rule.rest
    total += unlisted / odds
    return _by_probability((token, strength / total) for (token, _), strength in zip(ranked, strengths, strict=True))


def _by_probability(found: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(found, key=lambda item: -item[1])
