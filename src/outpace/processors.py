"""What is done to a row of logits before temperature: penalties, bias and masks, in one order.

For a row x [V] with c_t = how often token t stands in the output before the row (the prompt left out), the draft's
own path counted:

    1. repetition   x_t > 0 ? x_t / r : x_t r        for every t in prompt or output (Keskar et al. 2019, "CTRL",
                                                     equation 1, with the sign cared for)
    2. frequency    x_t - f c_t
    3. presence     x_t - p [c_t > 0]
    4. bias         x_t + b_t
    5. masks        -inf unless t is allowed; -inf if t is banned; -inf if t is withheld, in the first m rows

Steps 1 to 3 are computed in float64 and rounded to float32 once, step 4 likewise. Masks come last, so that no bias
lifts them: a masked token has probability exactly 0. `Adjuster` does in time that does not grow with the history
what `adjusted` says in full; the two agree to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt

from outpace.errors import UsageError

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Int64Array: TypeAlias = npt.NDArray[np.int64]

LARGEST_BIAS = 100.0
LARGEST_PENALTY = 2.0
REPETITION_RANGE = (0.01, 100.0)


class Before(Sequence[int]):
    """Every token before a row, without a copy: the first `known` committed ones and the node's own path."""

    __slots__ = ("committed", "known", "path")

    def __init__(self, committed: Sequence[int], path: Sequence[int] = ()) -> None:
        self.committed = committed
        self.known = len(committed)
        self.path = tuple(path)

    def __len__(self) -> int:
        return self.known + len(self.path)

    def __iter__(self) -> Iterator[int]:
        yield from self.committed[: self.known]
        yield from self.path

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[index]


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What a request changes about the logits; the default changes nothing.

    repetition_penalty: in [0.01, 100], divides positive logits and multiplies others of tokens in prompt or output;
    1 is off. presence_penalty: in [-2, 2], subtracted once for a token of the output. frequency_penalty: in [-2, 2],
    subtracted as often as the token occurs in the output. logit_bias: token -> a number of [-100, 100], added after
    the penalties. banned: tokens of probability 0. allowed: all others have probability 0; None allows all.
    min_tokens: `withheld` tokens have probability 0 in this many first rows.
    Raises UsageError for values out of range.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned: frozenset[int] = frozenset()
    allowed: frozenset[int] | None = None
    min_tokens: int = 0
    withheld: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        low, high = REPETITION_RANGE
        if not low <= self.repetition_penalty <= high:
            raise UsageError(
                f"repetition_penalty must be in [{low:g}, {high:g}] (1 = off), got {self.repetition_penalty}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if not -LARGEST_PENALTY <= value <= LARGEST_PENALTY:
                raise UsageError(f"{name} must be in [-2, 2] (0 = off), got {value}")
        for token, bias in self.logit_bias.items():
            if not -LARGEST_BIAS <= bias <= LARGEST_BIAS:
                raise UsageError(
                    f"logit_bias must be in [-100, 100], got {bias} for token {token}; banned forbids a token"
                )
        if self.min_tokens < 0:
            raise UsageError(f"min_tokens must be at least 0, got {self.min_tokens}")

    def check(self, vocab_size: int) -> None:
        """Raises UsageError for tokens outside [0, vocab_size), and where no token is left to draw."""
        named = {"logit_bias": self.logit_bias, "banned": self.banned, "allowed": self.allowed or ()}
        for name, tokens in named.items():
            check_ids(name, tokens, vocab_size)
        if not self._leaves_one(vocab_size, self.banned):
            raise UsageError("every token is banned: allow one that banned does not list")
        if self.min_tokens and not self._leaves_one(vocab_size, self.banned | self.withheld):
            raise UsageError(
                f"min_tokens is {self.min_tokens}, but only tokens that end the text may be drawn: allow another one"
            )

    def _leaves_one(self, vocab_size: int, excluded: frozenset[int]) -> bool:
        """Whether a token may be drawn; looks at no more of them than it must, as every request asks."""
        tokens = range(vocab_size) if self.allowed is None else self.allowed
        return any(token not in excluded for token in tokens)

    @property
    def penalises(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is changed."""
        masks = bool(self.banned) or self.allowed is not None or bool(self.min_tokens and self.withheld)
        return not (self.penalises or self.logit_bias or masks)


def check_ids(name: str, tokens: Collection[int], vocab_size: int) -> None:
    """Raises UsageError unless every token is an id in [0, vocab_size)."""
    for token in tokens:
        if not isinstance(token, int | np.integer) or isinstance(token, bool) or not 0 <= token < vocab_size:
            raise UsageError(f"{name} must hold token ids in [0, {vocab_size}), got {token!r:.40}")


def adjusted(row: Float32Array, before: Sequence[int], prompt_length: int, wanted: Adjustments) -> Float32Array:
    """Returns the row [V] after every step, a new array: slow, short, and what `Adjuster` must equal.

    before: every token before the row, of which the first `prompt_length` are the prompt.
    """
    output = Counter(before[prompt_length:])
    seen = {*before} if wanted.repetition_penalty != 1 else {*output}
    new = row.copy()
    with np.errstate(over="ignore"):
        for token in seen:
            new[token] = penalised(float(row[token]), output[token], wanted)
        for token, bias in wanted.logit_bias.items():
            new[token] = float(new[token]) + bias
    for token in range(len(row)):
        outside = wanted.allowed is not None and token not in wanted.allowed
        early = len(before) - prompt_length < wanted.min_tokens and token in wanted.withheld
        if outside or early or token in wanted.banned:
            new[token] = -math.inf
    return new


class Adjuster:
    """`adjusted` for the rows of one request. Pure: the row's own path is all that it sees of a draft.

    It keeps the counts of lists of committed tokens that grow at their end (the target's and a drafter's), so that
    a row costs the distinct tokens seen, not the history; any other list is counted anew. The row it returns is its
    own, overwritten by the next call: a fresh one of a large vocabulary costs more in page faults than all the rest.
    """

    def __init__(self, wanted: Adjustments, prompt_length: int) -> None:
        self._wanted = wanted
        self._prompt_length = prompt_length
        # Without a repetition penalty the prompt changes nothing.
        self._first = 0 if wanted.repetition_penalty != 1 else prompt_length
        self._seen: tuple[_Seen, ...] = ()
        self._biased = np.fromiter(wanted.logit_bias.keys(), np.int64)
        self._bias = np.fromiter(wanted.logit_bias.values(), np.float64)
        self._banned = _ids(wanted.banned)
        self._withheld = _ids(wanted.withheld)
        self._new: Float32Array | None = None
        self._allowed = None if wanted.allowed is None else _ids(wanted.allowed)

    def __call__(self, row: Float32Array, before: Before) -> Float32Array:
        """Returns the row [V] after every step, valid until the next call."""
        if self._new is None or self._new.shape != row.shape:
            self._new = np.empty_like(row)
        new = self._new
        new[:] = row
        with np.errstate(over="ignore"):  # a logit beyond float32 is infinite, as the sampler takes it
            if self._wanted.penalises:
                self._penalise(row, new, before)
            if len(self._biased):
                new[self._biased] = new[self._biased].astype(np.float64) + self._bias
        self._mask(new, len(before) - self._prompt_length)
        return new

    def _penalise(self, row: Float32Array, new: Float32Array, before: Before) -> None:
        seen = self._committed(before)
        used = len(seen.slots)
        ids = seen.ids[:used]
        x = new[ids].astype(np.float64)  # still the row's, and in the cache where the row is not
        repetition = self._wanted.repetition_penalty
        if repetition != 1:
            x = np.where(x > 0, x / repetition, x * repetition)
        new[ids] = x - seen.costs[:used]
        for token, more in Counter(before.path).items() if before.path else ():
            count = more + (seen.counts[seen.slots[token]] if token in seen.slots else 0)
            new[token] = penalised(float(row[token]), count, self._wanted)

    def _mask(self, new: Float32Array, output: int) -> None:
        if self._allowed is not None:
            kept = new[self._allowed]
            new.fill(-math.inf)
            new[self._allowed] = kept
        if len(self._banned):
            new[self._banned] = -math.inf
        if output < self._wanted.min_tokens:
            new[self._withheld] = -math.inf

    def _committed(self, before: Before) -> _Seen:
        for seen in self._seen:
            if seen.follow(before.committed, before.known):
                return seen
        fresh = _Seen(before.committed, self._first, self._prompt_length, self._wanted)
        fresh.follow(before.committed, before.known)
        self._seen = (fresh, *self._seen[:1])
        return fresh


class _Seen:
    """The distinct tokens of one growing list. slots: token -> its place in `ids`, `counts` and `costs`.

    counts: how often each is in the output. costs: its frequency and presence penalties together.
    """

    def __init__(self, committed: Sequence[int], first: int, prompt_length: int, wanted: Adjustments) -> None:
        self.slots: dict[int, int] = {}
        self.ids = np.zeros(64, np.int64)
        self.costs = np.zeros(64)
        self.counts: list[int] = []
        self._committed = committed
        self._prompt_length = prompt_length
        self._wanted = wanted
        self._done = first
        self._last: int | None = None

    def follow(self, committed: Sequence[int], count: int) -> bool:
        """Counts up to `count` tokens; returns False when the list is another, or no longer what it was."""
        if committed is not self._committed or count < self._done:
            return False
        if self._last is not None and committed[self._done - 1] != self._last:
            return False
        for place in range(self._done, count):
            self._add(committed[place], place >= self._prompt_length)
        if count > self._done:
            self._done, self._last = count, committed[count - 1]
        return True

    def _add(self, token: int, in_output: bool) -> None:
        slot = self.slots.setdefault(token, len(self.slots))
        if slot == len(self.counts):
            self.counts.append(0)
            if slot == len(self.ids):
                self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)])
                self.costs = np.concatenate([self.costs, np.zeros_like(self.costs)])
            self.ids[slot] = token
        if in_output:
            self.counts[slot] += 1
            self.costs[slot] = cost(self.counts[slot], self._wanted)


def penalised(logit: float, count: int, wanted: Adjustments) -> float:
    """Returns the logit of a token seen before, `count` times in the output, after steps 1 to 3."""
    repetition = wanted.repetition_penalty
    return (logit / repetition if logit > 0 else logit * repetition) - cost(count, wanted)


def cost(count: int, wanted: Adjustments) -> float:
    """Returns what steps 2 and 3 subtract for a token that stands `count` times in the output."""
    return wanted.frequency_penalty * count + wanted.presence_penalty if count else 0.0


def _ids(tokens: Collection[int]) -> Int64Array:
    return np.array(sorted(tokens), np.int64)
