"""Where logits become probabilities and tokens: parameters, the plain sampler, and the laws of a round.

The order is one: processors (processors.py: penalties, bias, masks; each row sees the tokens before it), temperature,
top_k, top_p, min_p. A constraint's mask comes last of the processors: what it excludes counts as -inf. Ties go to the
lowest id everywhere. Filters work on integer weights
w = round(2^44 e^((logit - max) / temperature)), whose sums are exact in any order, so no implementation can keep a
different set; a token of weight 0 is never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError
from outpace.noise import Purpose, check_choice, check_seed, keyed_gumbel
from outpace.numerics import LOG2_E, exp2
from outpace.processors import Before
from outpace.types import Array, Draft, Scores

try:
    from outpace._native import FusedSampler
except ImportError:  # installed without a compiler: the readable sampler draws the same tokens
    _FUSED = False
else:
    _FUSED = True

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.uint32]
"""[at least V / 32] a bit for each token that may be drawn: bit t % 32 of word t / 32."""

Processor: TypeAlias = Callable[[Float32Array, Before], Float32Array]
"""(logits [V], every token before the row: committed ones and the node's own path) -> new logits [V].

The row that it gets stays as it is; what it returns is used before its next call. Nothing that a rejected draft's row
did may show in a later row.
"""

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: only exact ties of float32 logits could still tell the difference."""

MAX_TOP_K = (1 << 31) - 1
"""What the native sampler counts in. A vocabulary has fewer tokens, and then top_k keeps all."""

MAX_VOCAB = (1 << 19) - 1
"""The sum of this many weights still fits 63 bits."""

_WEIGHT_BITS = 44
_NOTHING = Before(())
_FLOAT32 = np.dtype(np.float32)
_SAMPLE, _DRAFT = int(Purpose.SAMPLE), int(Purpose.DRAFT)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What the plain sampler does with the target's logits, in this order; the default is the model's own law.

    temperature: >= 0, divides the logits; 0 (and anything under 1e-5) takes the largest logit.
    top_k: keeps the k largest logits; 0 is off, 1 is greedy.
    top_p: in (0, 1], keeps the fewest tokens, likeliest first, whose probability reaches it; 1 is off.
    min_p: in [0, 1), keeps tokens at least this many times as likely as the likeliest; 0 is off.
    seed: any 64-bit integer; None draws a fresh one for each request.
    Raises UsageError for values out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"temperature must be finite and at least 0, got {self.temperature}")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise UsageError(f"top_k must be in [0, {MAX_TOP_K}] (0 = off), got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0 <= self.min_p < 1:
            raise UsageError(f"min_p must be in [0, 1), got {self.min_p}")
        if self.seed is not None:
            check_seed(self.seed)

    @property
    def greedy(self) -> bool:
        """Whether the token is the largest logit's, without randomness."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1


class Constraint(Protocol):
    """Which tokens may follow a path; pure functions of it. A path that breaks the constraint is never reached."""

    def mask(self, before: Before) -> Mask | None:
        """Returns the tokens that may come next; None after a path that breaks the constraint, or has ended."""
        ...

    def allows(self, before: Before, token: int) -> bool:
        """Returns the token's bit of `mask`, at less cost; True where there is no mask."""
        ...


class SamplerCore(Protocol):
    """Draws from rows of logits; `Reference` is the readable one, the native one is fused. Equal to the bit.

    mask: tokens without a bit count as -inf; None allows all.
    """

    def draw(self, row: Float32Array, purpose: int, place: int, node: int, mask: Mask | None = None) -> int:
        """Returns the token with the largest (logit - max) / temperature + Gumbel noise among those that survive."""
        ...

    def probs(self, row: Float32Array, mask: Mask | None = None) -> Float64Array:
        """Returns [V] w / sum of w after the filters; exactly 0 for a token that cannot be drawn."""
        ...


class Reference:
    """The plain sampler in NumPy: slow, short, and what the fused one must equal."""

    def __init__(self, params: SamplingParams, seed: int, choice: int) -> None:
        self._params = params
        self._seed = check_seed(seed)
        self._choice = check_choice(choice)

    def draw(self, row: Float32Array, purpose: int, place: int, node: int, mask: Mask | None = None) -> int:
        row = masked(row, mask)
        weights = self.weights(row)
        survivors = np.flatnonzero(weights)
        if len(survivors) == 1:
            return int(survivors[0])
        noise = keyed_gumbel(self._seed, self._choice, purpose, place, node, survivors)
        scaled = self._below_largest(row[survivors]) / self._params.temperature
        return int(survivors[np.argmax(scaled + noise)])

    def probs(self, row: Float32Array, mask: Mask | None = None) -> Float64Array:
        weights = self.weights(masked(row, mask))
        return weights.astype(np.float64) / float(weights.sum())

    def weights(self, row: Float32Array) -> Int64Array:
        """Returns [V] the integer weights after every filter; 0 = cannot be drawn. Raises as `check_row` does."""
        check_row(row)
        weights = np.zeros(len(row), dtype=np.int64)
        if self._params.greedy:
            weights[np.argmax(row)] = 1 << _WEIGHT_BITS
            return weights
        weights[:] = np.rint(exp2(self._below_largest(row) * (LOG2_E / self._params.temperature)) * 2.0**_WEIGHT_BITS)
        best_first = np.argsort(-row, kind="stable")
        if 0 < self._params.top_k < len(row):
            weights[best_first[self._params.top_k :]] = 0
        if self._params.top_p < 1:
            sums = np.cumsum(weights[best_first])
            enough = max(1, math.ceil(float(sums[-1]) * self._params.top_p))
            weights[best_first[np.searchsorted(sums, enough) + 1 :]] = 0
        weights[weights < math.ceil(self._params.min_p * 2.0**_WEIGHT_BITS)] = 0
        return weights

    @staticmethod
    def _below_largest(row: Float32Array) -> Float64Array:
        largest = row.max()
        with np.errstate(invalid="ignore"):  # inf - inf, replaced by 0: +inf is the limit of large
            below = row.astype(np.float64) - np.float64(largest)
        return np.where(row == largest, 0.0, below)


def masked(row: Float32Array, mask: Mask | None) -> Float32Array:
    """Returns the row [V] with -inf for every token that the mask excludes. Raises UsageError if it excludes all."""
    if mask is None:
        return row
    bits = np.unpackbits(mask.view(np.uint8), count=len(row), bitorder="little")
    new = np.where(bits == 1, row, np.float32(-np.inf))
    if not (new > -math.inf).any() and not np.isnan(new).any():
        raise UsageError(
            "no token is left to draw: the grammar allows none that allowed, banned, min_tokens and the model allow"
        )
    return new


def check_row(row: Float32Array) -> None:
    """Raises UsageError unless the row has 1 to MAX_VOCAB logits, no NaN among them, and not all are -inf."""
    if row.ndim != 1 or not 0 < len(row) <= MAX_VOCAB:
        raise UsageError(f"a row of logits must have 1 to {MAX_VOCAB} entries, got shape {row.shape}")
    largest = row.max()  # NaN if any is
    if math.isnan(largest):
        raise UsageError(f"logits must not be NaN, got NaN for token {int(np.argmax(np.isnan(row)))}")
    if largest == -math.inf:
        raise UsageError("every token is banned: all logits are -inf")


class Fused:
    """The same in C++, about a thousand times as fast (csrc/sampler.cpp)."""

    def __init__(self, params: SamplingParams, seed: int, choice: int) -> None:
        self._native = FusedSampler(
            params.greedy, params.temperature, params.top_k, params.top_p, params.min_p, check_seed(seed), choice
        )

    def draw(self, row: Float32Array, purpose: int, place: int, node: int, mask: Mask | None = None) -> int:
        token = self._native.draw(row, purpose, place, node, mask)
        if token < 0:
            check_row(masked(row, mask))
        return token

    def probs(self, row: Float32Array, mask: Mask | None = None) -> Float64Array:
        probs = np.empty(len(row), dtype=np.float64)
        if not self._native.probs(row, probs, mask):
            check_row(masked(row, mask))
        return probs


def sampler_core(params: SamplingParams, seed: int, choice: int) -> SamplerCore:
    """Returns the fused sampler, or the readable one where the native engine is not installed."""
    return Fused(params, seed, choice) if _FUSED else Reference(params, seed, choice)


class RowLaw:
    """The law of one row of logits, computed when asked; rows that no rule reaches cost nothing."""

    __slots__ = ("_before", "_core", "_node", "_place", "_processors", "_purpose", "_row")

    def __init__(
        self,
        core: SamplerCore,
        row: Float32Array,
        purpose: int,
        place: int,
        node: int,
        processors: Sequence[Processor] = (),
        before: Before = _NOTHING,
    ) -> None:
        self._core, self._row = core, row
        self._purpose, self._place, self._node = purpose, place, node
        self._processors, self._before = processors, before

    def draw(self) -> int:
        """Returns the token that the plain sampler emits here."""
        return self._core.draw(self._processed(), self._purpose, self._place, self._node)

    def probs(self) -> Float64Array:
        """Returns [V] float64, 0 for every token that `draw` cannot return."""
        return self._core.probs(self._processed())

    def _processed(self) -> Float32Array:
        row = self._row
        for processor in self._processors:
            row = processor(row, self._before)
        return row


class ConstrainedLaw(RowLaw):
    """A `RowLaw` under a constraint, whose mask is asked for only where it decides."""

    __slots__ = ("_constraint", "_greedy")

    def __init__(self, constraint: Constraint, greedy: bool, *law: Any) -> None:
        super().__init__(*law)
        self._constraint, self._greedy = constraint, greedy

    def draw(self) -> int:
        row = self._processed()
        if self._greedy:  # the largest of all is the largest of those allowed, if it is one of them
            token = self._core.draw(row, self._purpose, self._place, self._node)
            if self._constraint.allows(self._before, token):
                return token
        mask = self._constraint.mask(self._before)
        return self._core.draw(row, self._purpose, self._place, self._node, mask)

    def probs(self) -> Float64Array:
        return self._core.probs(self._processed(), self._constraint.mask(self._before))


class RowLaws(Sequence[RowLaw]):
    """The laws of rows whose tokens have no say in them, each made when it is asked for: a rule reaches few of them.

    parents: of the draft where draws are keyed by position alone; None for a drafter's own draws.
    """

    __slots__ = ("_committed", "_core", "_parents", "_rows")

    def __init__(self, core: SamplerCore, rows: Float32Array, committed: int, parents: Sequence[int] | None) -> None:
        self._core, self._rows = core, rows
        self._committed, self._parents = committed, parents

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> RowLaw: ...
    @overload
    def __getitem__(self, index: slice) -> list[RowLaw]: ...
    def __getitem__(self, index: int | slice) -> RowLaw | list[RowLaw]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row, parents = self._rows[index], self._parents
        place, node = self._committed, index - 1 if index >= 0 else len(self) + index - 1
        if parents is None:
            return RowLaw(self._core, row, _DRAFT, place, node + 1)
        while node >= 0:
            place, node = place + 1, parents[node]
        return RowLaw(self._core, row, _SAMPLE, place, 0)


class Sampler:
    """A `LawMaker`: the plain sampler of one choice of one request; the target and a drafter use one each.

    shares_noise: draws are keyed by absolute position, so that whoever samples there with the same seed uses the same
    Gumbel noise (the rule `coupled` and its drafters). Otherwise they are a drafter's own, keyed by the tokens
    committed when the round began and the node. constraint: seen by every row with its own path, after `processors`.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        choice: int = 0,
        *,
        shares_noise: bool = True,
        processors: Sequence[Processor] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self.params = params
        self.seed = check_seed(seed)
        self.choice = check_choice(choice)
        self.shares_noise = shares_noise
        self._processors = tuple(processors)
        self._constraint = constraint
        self._sees_paths = bool(self._processors) or constraint is not None
        self._core = sampler_core(params, self.seed, self.choice)

    @property
    def takes_argmax(self) -> bool:
        """Whether every draw is the row's largest logit: greedy, and nothing changes the logits."""
        return self.params.greedy and not self._sees_paths

    @property
    def temperature(self) -> float:
        """Of every law; 0 = greedy."""
        return self.params.temperature

    @property
    def shared_noise(self) -> tuple[int, int] | None:
        """(seed, choice) of draws that are keyed by absolute position alone; None of others, and of greedy ones."""
        return (self.seed, self.choice) if self.shares_noise and not self.params.greedy else None

    def __call__(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[RowLaw]:
        """Returns [N+1] laws: row 0 follows the last committed token, row i + 1 node i."""
        rows = scores.logits  # the native engine's are as they must be
        if rows.dtype is not _FLOAT32:
            rows = np.asarray(rows, dtype=np.float32)
        if self._sees_paths:
            return [
                self._law(row, committed, [draft.tokens[i] for i in draft.path_to(node)], node)
                for node, row in enumerate(rows, -1)
            ]
        return RowLaws(self._core, rows, len(committed), draft.parents if self.shares_noise else None)

    def draw_all(self, scores: Scores, committed: Sequence[int], draft: Draft) -> list[int]:
        """Returns [N+1] what `draw` of each law returns."""
        return [law.draw() for law in self(scores, committed, draft)]

    def after(self, logits: Array, committed: Sequence[int], path: Sequence[int]) -> RowLaw:
        """Returns the law of the row [V] that follows `path` (token ids of a chain) after the committed tokens.

        A law of a drafter's own noise is read again by the rule, after the drafter's next pass: it keeps a copy.
        """
        row = np.asarray(logits, dtype=np.float32)
        return self._law(row if self.shares_noise else row.copy(), committed, path, len(path) - 1)

    def _law(self, row: Float32Array, committed: Sequence[int], path: Sequence[int], node: int) -> RowLaw:
        before = Before(committed, path) if self._sees_paths else _NOTHING
        key = (_SAMPLE, len(committed) + len(path), 0) if self.shares_noise else (_DRAFT, len(committed), node + 1)
        if self._constraint is None:
            return RowLaw(self._core, row, *key, self._processors, before)
        return ConstrainedLaw(self._constraint, self.params.greedy, self._core, row, *key, self._processors, before)
