"""Who answers a prompt in a benchmark, and what is recorded of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Protocol

from outpace.bench.tasks import Question
from outpace.options import Options
from outpace.registry import RULES

if TYPE_CHECKING:
    from outpace.api import Model

PLAIN = "outpace plain"
"""The baseline: our own plain decoding."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer. arrivals: (tokens that came at once, seconds since the request). passes: of the target, if known.

    Tokens are counted as the engine emitted them, never by pieces of text.
    """

    tokens: tuple[int, ...]
    arrivals: tuple[tuple[int, float], ...]
    passes: int | None = None
    drafted: int = 0
    accepted: int = 0

    @property
    def first_seconds(self) -> float:
        """Time to the first token."""
        return self.arrivals[0][1]

    @property
    def later_tokens(self) -> int:
        """Tokens after the first arrival; what decoding speed is measured on."""
        return len(self.tokens) - self.arrivals[0][0]

    @property
    def later_seconds(self) -> float:
        return self.arrivals[-1][1] - self.arrivals[0][1]

    def record(self) -> dict[str, Any]:
        return {
            "tokens": list(self.tokens),
            "arrivals": [[count, seconds] for count, seconds in self.arrivals],
            "passes": self.passes,
            "drafted": self.drafted,
            "accepted": self.accepted,
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Reading:
        """Returns the reading of a record. Raises KeyError, TypeError or ValueError for what is none."""
        arrivals = tuple((int(count), float(seconds)) for count, seconds in record["arrivals"])
        if not arrivals:
            raise ValueError("an answer without tokens")
        passes = record["passes"]
        return Reading(
            tuple(map(int, record["tokens"])),
            arrivals,
            None if passes is None else int(passes),
            int(record["drafted"]),
            int(record["accepted"]),
        )


class Contender(Protocol):
    """An engine with settings. settle_seconds: how long its threads spin on after an answer."""

    name: str
    version: str
    load_seconds: float
    settle_seconds: float

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        """Returns the greedy answer to a prompt that no cache knows. ids: the prompt through the chat template."""
        ...

    def close(self) -> None: ...


class Ours:
    """One setting of a loaded model; several may share it."""

    settle_seconds = 0.0

    def __init__(self, model: Model, name: str, options: Mapping[str, Any], *, version: str) -> None:
        self.name = name
        self.version = version
        self.load_seconds = model.load_seconds
        self.options = dict(options)
        self._model = model

    @property
    def keeps_text(self) -> bool:
        """Whether the text must be plain decoding's, sampled as well as greedy."""
        rule = RULES.get(self.options.get("rule", Options().rule))()
        return bool(rule.lossless and rule.shares_noise)

    def answer(self, question: Question, ids: Sequence[int], max_tokens: int) -> Reading:
        self._model.forget_prefixes()
        start = clock()
        generation = self._model.stream(question.text, max_tokens=max_tokens, **self.options)
        arrivals = [(len(chunk.step.tokens), clock() - start) for chunk in generation]
        result = generation.result()
        return Reading(result.tokens, tuple(arrivals), len(result.steps), result.drafted, result.accepted)

    def sampled(self, question: Question, max_tokens: int, seed: int) -> tuple[int, ...]:
        """Returns the tokens at temperature 1."""
        more: dict[str, Any] = {"temperature": 1.0, "seed": seed}
        return self._model.generate(question.text, max_tokens=max_tokens, **self.options | more).tokens

    def close(self) -> None:
        """Nothing: the model belongs to whoever loaded it."""


def arrivals_of(
    one_pass: Callable[[], Sequence[int]], ends: frozenset[int], max_tokens: int, start: float
) -> Reading:
    """Returns the reading of a loop: `one_pass` returns what one pass commits, until an end or `max_tokens`.

    start: when the request began, by `clock`.
    """
    tokens: list[int] = []
    arrivals = []
    while len(tokens) < max_tokens:
        new = list(one_pass())[: max_tokens - len(tokens)]
        ending = next((i for i, token in enumerate(new) if token in ends), None)
        new = new if ending is None else new[: ending + 1]
        tokens += new
        arrivals.append((len(new), clock() - start))
        if ending is not None:
            break
    return Reading(tuple(tokens), tuple(arrivals), len(arrivals))
