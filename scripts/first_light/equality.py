"""The text does not depend on drafter, draft length, threads or batch mates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acceptance import Outcome

from first_light.common import DRAFT, EMBEDDED, SEED, TARGET, load, per_task, prompts, together
from outpace.api import Model

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": SEED, "max_tokens": 64}
BATCH = 8


Text = tuple[int, ...]
Way = Callable[[Sequence[str]], list[Text]]


def alone(model: Model, **options: Any) -> Way:
    return lambda questions: [model.generate(question, **options).tokens for question in questions]


def in_one_batch(model: Model, **options: Any) -> Way:
    return lambda questions: [result.tokens for result in together(model, questions, **options)]


def compare(questions: Sequence[str], plain: Way, others: dict[str, Way]) -> Iterator[Outcome]:
    """Yields how many texts of each way equal the plain ones; batch by batch, so that prefixes are found cached."""
    wrong: dict[str, list[int]] = {name: [] for name in others}
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        texts = plain(batch)
        for name, way in others.items():
            pairs = zip(texts, way(batch), strict=True)
            wrong[name] += [start + i for i, (text, other) in enumerate(pairs) if text != other]
    for name, different in wrong.items():
        figure = f"{len(questions) - len(different)} of {len(questions)} texts equal"
        if different:
            figure += f", first difference in prompt {different[0]}"
        yield Outcome(f"{name} against none", figure, "all", not different)


def embedded() -> Iterator[Outcome]:
    questions = [prompt for _, prompt in prompts()]
    model, single = load(EMBEDDED), load(EMBEDDED, threads=1)
    for law, options in (("greedy", GREEDY), ("temperature 1", SAMPLED)):
        others = {
            f"{law}, ngram {length}": alone(model, drafter="ngram", draft_length=length, **options)
            for length in (1, 3, 8)
        }
        others[f"{law}, default"] = alone(model, **options)
        others[f"{law}, 1 thread, ngram 3"] = alone(single, drafter="ngram", draft_length=3, **options)
        others[f"{law}, batch of {BATCH}, ngram 3"] = in_one_batch(model, drafter="ngram", draft_length=3, **options)
        yield from compare(questions, alone(model, drafter="none", **options), others)


def pair() -> Iterator[Outcome]:
    questions = [prompt for _, prompt in per_task(4)]
    model = load(TARGET, DRAFT)
    for law, options in (("greedy", GREEDY), ("temperature 1", SAMPLED)):
        others = {f"{law}, {drafter}": alone(model, drafter=drafter, **options) for drafter in ("ngram", "model")}
        yield from compare(questions, alone(model, drafter="none", **options), others)


Measure = Callable[[], Iterator[Outcome]]
LINES: list[tuple[str, str, Measure]] = [
    ("texts", "embedded model: the text is the same with every draft, thread count and batch", embedded),
    ("pair-texts", "1.5B: the text is the same with n-gram drafts and with the 0.5B", pair),
]
