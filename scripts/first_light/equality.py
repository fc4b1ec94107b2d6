"""The text does not depend on drafter, draft length, threads or batch mates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from accept import Outcome

from first_light.common import DRAFT, EMBEDDED, SEED, TARGET, load, per_task, prompts, together
from outpace.api import Model

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": SEED, "max_tokens": 64}
BATCH = 8


def same(what: str, plain: Sequence[tuple[int, ...]], other: Sequence[tuple[int, ...]]) -> Outcome:
    """Returns the outcome of comparing two lists of token texts."""
    different = [i for i, (a, b) in enumerate(zip(plain, other, strict=True)) if a != b]
    figure = f"{len(plain) - len(different)} of {len(plain)} texts equal"
    return Outcome(what, figure + (f", first difference in prompt {different[0]}" if different else ""), "all",
                   not different)  # fmt: skip


def texts(model: Model, questions: Sequence[str], **options: Any) -> list[tuple[int, ...]]:
    return [model.generate(question, **options).tokens for question in questions]


def embedded() -> Iterator[Outcome]:
    questions = [prompt for _, prompt in prompts()]
    model = load(EMBEDDED)
    for name, options in (("greedy", GREEDY), ("temperature 1", SAMPLED)):
        plain = texts(model, questions, drafter="none", **options)
        for length in (1, 3, 8):
            drafted = texts(model, questions, drafter="ngram", draft_length=length, **options)
            yield same(f"{name}, ngram {length} against none", plain, drafted)
        yield same(f"{name}, default against none", plain, texts(model, questions, **options))
        one = texts(load(EMBEDDED, threads=1), questions, drafter="ngram", draft_length=3, **options)
        yield same(f"{name}, 1 thread against 2", plain, one)
        yield same(f"{name}, in a batch of {BATCH} against alone", plain, in_batches(model, questions, **options))


def in_batches(model: Model, questions: Sequence[str], **options: Any) -> list[tuple[int, ...]]:
    results = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        results += together(model, batch, drafter="ngram", draft_length=3, **options)
    return [result.tokens for result in results]


def pair() -> Iterator[Outcome]:
    questions = [prompt for _, prompt in per_task(4)]
    model = load(TARGET, DRAFT)
    for name, options in (("greedy", GREEDY), ("temperature 1", SAMPLED)):
        plain = texts(model, questions, drafter="none", **options)
        yield same(f"{name}, ngram against none", plain, texts(model, questions, drafter="ngram", **options))
        yield same(f"{name}, model against none", plain, texts(model, questions, drafter="model", **options))


Measure = Callable[[], Iterator[Outcome]]
LINES: list[tuple[str, str, Measure]] = [
    ("texts", "embedded model: the text is the same with every draft, thread count and batch", embedded),
    ("pair-texts", "1.5B: the text is the same with n-gram drafts and with the 0.5B", pair),
]
