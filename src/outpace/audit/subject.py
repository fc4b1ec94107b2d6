"""The model under audit: its plain texts, made once, and the ways of drafting that are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from outpace.api import Model
from outpace.audit.prompts import PROMPTS
from outpace.audit.report import NotCovered
from outpace.generation import Generation
from outpace.result import Result
from outpace.types import Step, Target

SEED = 20230
GREEDY: dict[str, Any] = {"temperature": 0.0}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": SEED}
FILTERED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "top_k": 50, "seed": SEED}

Wanted: TypeAlias = dict[str, Any]
"""Keyword arguments of `Model.generate`."""
Text: TypeAlias = tuple[tuple[int, ...], str, str]
"""Tokens, text, and why it ended."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of drafting. length: tokens a round, None = set from measured costs. model: what drafts there."""

    drafter: str
    length: int | None
    rule: str = "coupled"

    def options(self) -> Wanted:
        """Returns it as keyword arguments of `Model.generate`."""
        return {"drafter": self.drafter, "draft_length": self.length, "rule": self.rule}

    def __str__(self) -> str:
        length = "measured length" if self.length is None else f"draft length {self.length}"
        return f"{self.drafter}, {length}" + ("" if self.rule == "coupled" else f", rule {self.rule}")


PLAIN = Way("none", None)


@dataclass(slots=True)
class Subject:
    """A loaded model and what it is asked.

    reload: loads it anew with so many threads. change: what a mutant does to each request before its first round.
    truth: whose plain texts count, where that is not this one.
    """

    model: Model
    reload: Callable[[int], Model] | None = None
    questions: Sequence[str] = PROMPTS
    max_tokens: int = 40
    change: Callable[[Generation], None] | None = None
    truth: Subject | None = None
    _plain: dict[str, Text] = field(default_factory=dict)

    def request(self, question: str, way: Way, wanted: Wanted, **more: Any) -> Generation:
        """Returns a generation, opened and not begun."""
        raw = not self.model.text.has_chat_template
        options = {"max_tokens": self.max_tokens} | wanted | way.options() | more
        request = self.model.stream(question, raw=raw, **options)
        if self.change:
            self.change(request)
        return request

    def steps(self, question: str, way: Way, wanted: Wanted) -> Iterator[tuple[Generation, Step]]:
        """Yields each step of a generation with it, whose round may be looked at; closes it at the end."""
        request = self.request(question, way, wanted)
        try:
            for chunk in request:
                yield request, chunk.step
        finally:
            request.close()

    def result(self, question: str, way: Way, wanted: Wanted, **more: Any) -> Result:
        """Returns the finished generation."""
        return self.request(question, way, wanted, **more).run()

    def plain(self, question: str, wanted: Wanted) -> Text:
        """Returns the text without drafts."""
        wanted = {"max_tokens": self.max_tokens} | wanted
        if self.truth:
            return self.truth.plain(question, wanted)
        key = repr((question, sorted(wanted.items())))
        if key not in self._plain:
            self._plain[key] = text_of(self.result(question, PLAIN, wanted))
        return self._plain[key]

    def but(
        self,
        target: Target | None = None,
        draft: Target | None = None,
        change: Callable[[Generation], None] | None = None,
    ) -> Subject:
        """Returns the same with other parts; plain texts are still this one's."""
        model = Model(target or self.model.target, self.model.text, draft or self.model.draft)
        return replace(self, model=model, change=change, truth=self.truth or self)


def text_of(result: Result) -> Text:
    """Returns what is compared of a result."""
    return result.tokens, result.text, result.finish


def difference(expected: Text, got: Text) -> str | None:
    """Returns where two texts part, None where they are the same."""
    if expected == got:
        return None
    for place, (a, b) in enumerate(zip(expected[0], got[0], strict=False)):
        if a != b:
            return f"token {place} is {b}, plain decoding's {a}"
    if len(expected[0]) != len(got[0]):
        return f"{len(got[0])} tokens, plain decoding's text has {len(expected[0])}"
    if expected[2] != got[2]:
        return f"it ends by {got[2]!r}, plain decoding by {expected[2]!r}"
    return "the same tokens make another text"


@dataclass(slots=True)
class Comparison:
    """Texts compared with plain ones, and what was drafted for them. first: the first difference, and where."""

    texts: int = 0
    equal: int = 0
    drafted: int = 0
    accepted: int = 0
    first: str | None = None

    def add(self, label: str, expected: Text, result: Result) -> None:
        """Takes one result in. A drafter that was dropped on the way counts as a difference."""
        self.drafted += result.drafted
        self.accepted += result.accepted
        fault = f"the drafter was dropped: {result.fault}" if result.fault else None
        self.add_text(label, difference(expected, text_of(result)) or fault)

    def add_text(self, label: str, different: str | None) -> None:
        """Takes one text in."""
        self.texts += 1
        self.equal += different is None
        if different and self.first is None:
            self.first = f"{label}: {different}"

    @property
    def holds(self) -> bool:
        return self.first is None

    def evidence(self) -> str:
        """Returns the figures in a line. Raises NotCovered where nothing was drafted, so nothing was tried."""
        if self.holds and not self.drafted:
            raise NotCovered("nothing was drafted")
        text = f"{self.equal} of {self.texts} texts equal, {self.accepted} of {self.drafted} drafted accepted"
        return text if self.first is None else f"{text}; {self.first}"
