"""What a server's answers say: where two part and how near a tie that is, and the law of their first tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outpace.audit.outcomes import Outcomes, Probs, Tokens, outcomes
from outpace.audit.report import NotCovered
from outpace.audit.server import Answer

AMBIGUOUS = "\N{REPLACEMENT CHARACTER}"
"""In a token's text: a part of a character, which several tokens share, so that nothing is known of its token."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two greedy texts part. margin: nats between the reference's token and the other; None = not reported."""

    place: int
    got: str
    expected: str
    margin: float | None

    def described(self, near: float) -> str:
        """Returns the difference in a line, classed."""
        where = f"token {self.place} is {self.got!r}, not {self.expected!r}"
        if self.margin is None:
            return f"{where}: a fault, as far as can be told without the other's log-probability"
        kind = "a numeric near-tie" if self.margin <= near else "a fault"
        return f"{where}: {kind}, {self.margin:.3g} nats apart"


def first_difference(answer: Answer, reference: Answer) -> Difference | None:
    """Returns the first difference between two greedy answers, None where they are the same."""
    if answer.tokens is None or reference.tokens is None:
        if answer.text == reference.text:
            return None
        place = next(
            (i for i, (a, b) in enumerate(zip(answer.text, reference.text, strict=False)) if a != b),
            min(len(answer.text), len(reference.text)),
        )
        return Difference(place, answer.text[place : place + 12], reference.text[place : place + 12], None)
    for place, (got, expected) in enumerate(zip(answer.tokens, reference.tokens, strict=False)):
        if got != expected:
            law = reference.top[place] if reference.top else {}
            margin = law[expected] - law[got] if got in law and expected in law else None
            return Difference(place, got, expected, margin)
    if len(answer.tokens) != len(reference.tokens):
        place = min(len(answer.tokens), len(reference.tokens))
        return Difference(place, *(("the end", "more") if place == len(answer.tokens) else ("more", "the end")), None)
    return None


@dataclass(frozen=True, slots=True)
class ReportedLaw:
    """Cells of the first tokens with the probabilities that the server reports, and how often each came.

    inconsistent: where one context was reported with two laws, in a line; "" where not.
    """

    outcomes: Outcomes
    counts: Counter[Hashable]
    inconsistent: str = ""


def reported_law(answers: Sequence[Answer], n: int, rounding: float) -> ReportedLaw:
    """Returns the law that n sampled answers report. Raises NotCovered where they report none.

    rounding: nats by which a log-probability of one context may differ between answers.
    """
    laws: dict[tuple[str, ...], Mapping[str, float]] = {}
    for answer in answers:
        if not answer.tokens or answer.top is None:
            raise NotCovered("the server reports no log-probabilities")
        for place, listed in enumerate(answer.top):
            if any(AMBIGUOUS in token for token in answer.tokens[:place]):
                break
            law = {token: value for token, value in listed.items() if AMBIGUOUS not in token}
            known = laws.setdefault(answer.tokens[:place], law)
            for token in known.keys() & law.keys():
                if abs(known[token] - law[token]) > rounding:
                    return ReportedLaw(
                        Outcomes(0),
                        Counter(),
                        f"after {answer.tokens[:place]} the log-probability of {token!r} is {known[token]:.3f} in "
                        f"one answer, {law[token]:.3f} in another",
                    )
    ids = {token: i for i, token in enumerate(sorted({token for law in laws.values() for token in law}), 1)}
    names = {i: token for token, i in ids.items()}

    def after(begun: Tokens) -> Probs | None:
        law = laws.get(tuple(names.get(i, "") for i in begun)) if 0 not in begun else None
        if law is None:
            return None
        probs = np.zeros(len(ids) + 1)
        for token, value in law.items():
            probs[ids[token]] = math.exp(value)
        probs[0] = max(0.0, 1.0 - probs.sum())  # every token that is not listed
        return probs

    horizon = max(len(answer.tokens or ()) for answer in answers)
    found = outcomes(after, horizon, least=10 / n, most=16)
    texts: Counter[Tokens] = Counter()
    for answer in answers:
        texts[_listed(answer.tokens or (), laws, ids)] += 1
    return ReportedLaw(found, found.count(texts))


def _listed(
    tokens: tuple[str, ...], laws: Mapping[tuple[str, ...], Mapping[str, float]], ids: Mapping[str, int]
) -> Tokens:
    """Returns the ids of the tokens up to the first that its context's law does not list, which is 0."""
    found: list[int] = []
    for place, token in enumerate(tokens):
        if token not in laws[tokens[:place]]:
            return (*found, 0)
        found.append(ids[token])
    return tuple(found)
