"""Metamorphic checks of texts: drafts, their lengths, batches and threads must leave the plain text as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from outpace.api import Model
from outpace.audit.report import Finding, NotCovered, Task
from outpace.audit.subject import (
    FILTERED,
    GREEDY,
    PLAIN,
    SAMPLED,
    SEED,
    Comparison,
    Subject,
    Wanted,
    Way,
    text_of,
)
from outpace.generation import together
from outpace.registry import RULES

LENGTHS: tuple[int | None, ...] = (1, 3, 8, None)
BATCHES = (2, 5, 8)


def same_texts(subject: Subject, way: Way, wanted: Wanted, questions: Sequence[str]) -> Finding:
    """Compares the text of every question with the plain one."""
    seen = Comparison()
    for number, question in enumerate(questions):
        seen.add(f"prompt {number}", subject.plain(question, wanted), subject.result(question, way, wanted))
    return Finding(seen.holds, seen.evidence())


def text_tasks(subject: Subject, drafter: str, lengths: Sequence[int | None] = LENGTHS) -> Iterator[Task]:
    """Yields the checks of greedy and seeded text for one drafter."""
    questions = subject.questions
    for group, wanted in (("greedy text", GREEDY), ("seeded text", SAMPLED), ("seeded text, filtered", FILTERED)):
        for length in lengths:
            way = Way(drafter, length)
            yield Task(group, str(way), partial(same_texts, subject, way, wanted, questions))
    for rule in lossless_rules():
        if rule == "coupled":
            continue
        way = Way(drafter, 4, rule)
        yield Task("greedy text", str(way), partial(same_texts, subject, way, GREEDY, questions))
        yield Task("reproducible", str(way), partial(same_twice, subject, way, questions[:3]))


def same_twice(subject: Subject, way: Way, questions: Sequence[str]) -> Finding:
    """Compares two runs of one seed under a rule whose text depends on the drafts, their length being fixed."""
    seen = Comparison()
    for number, question in enumerate(questions):
        first = text_of(subject.result(question, way, SAMPLED))
        seen.add(f"prompt {number}", first, subject.result(question, way, SAMPLED))
    return Finding(seen.holds, seen.evidence())


def lossless_rules() -> list[str]:
    """Returns the names of the registered rules that keep the target's law."""
    return [name for name in RULES.names() if RULES.get(name)().lossless]


def batch_tasks(subject: Subject, drafter: str, sizes: Sequence[int] = BATCHES) -> Iterator[Task]:
    """Yields the checks of requests that share their passes."""
    for size in sizes:
        yield Task("batches", f"{drafter}, {size} requests", partial(in_one_batch, subject, drafter, size))


def in_one_batch(subject: Subject, drafter: str, size: int) -> Finding:
    """Compares requests of other prompts, draft lengths, temperatures and ends, alone and in one batch."""
    mixed = [_nth(subject, n) for n in range(size)]
    requests = [subject.request(question, Way(drafter, length), wanted) for question, length, wanted in mixed]
    seen = Comparison()
    for number, (result, (question, _, wanted)) in enumerate(
        zip(together(requests, subject.model.target), mixed, strict=True)
    ):
        seen.add(f"request {number}", subject.plain(question, wanted), result)
    return Finding(seen.holds, seen.evidence())


def _nth(subject: Subject, n: int) -> tuple[str, int, Wanted]:
    question = subject.questions[n % len(subject.questions)]
    wanted = (GREEDY, SAMPLED, FILTERED)[n % 3] | {"max_tokens": subject.max_tokens - 3 * (n % 4)}
    return question, (4, 0, 2, 8, 1)[n % 5], wanted


def thread_tasks(subject: Subject, drafter_names: Sequence[str], counts: Sequence[int]) -> Iterator[Task]:
    """Yields the checks of other numbers of threads, plain and with every drafter."""
    for count in counts:
        yield Task(
            "threads", f"{count} thread{'s' * (count > 1)}", partial(on_threads, subject, drafter_names, count)
        )


def on_threads(subject: Subject, drafter_names: Sequence[str], count: int) -> Finding:
    """Compares the texts of the model loaded anew with so many threads."""
    if subject.reload is None:
        raise NotCovered("the model cannot be loaded anew here")
    questions = subject.questions[:2]
    seen = Comparison()
    with subject.reload(count) as model:
        draft = model.draft or model.target
        other = Subject(Model(model.target, model.text, draft), None, subject.questions, subject.max_tokens)
        for way in (PLAIN, *(Way(name, 3) for name in drafter_names)):
            for number, question in enumerate(questions):
                for wanted in (GREEDY, SAMPLED):
                    expected = subject.plain(question, wanted)
                    seen.add(f"{way}, prompt {number}", expected, other.result(question, way, wanted))
    return Finding(seen.holds, seen.evidence())


def ending_tasks(subject: Subject, drafter: str) -> Iterator[Task]:
    """Yields the checks of ends that fall inside a block of drafted tokens."""
    question = subject.questions[0]
    yield Task("ends", f"{drafter}, stop id at each place of a block", partial(stop_ids, subject, drafter, question))
    yield Task("ends", f"{drafter}, max_tokens 1 to 12", partial(counted, subject, drafter, question))
    yield Task("ends", f"{drafter}, stop strings", partial(stop_strings, subject, drafter, question))
    yield Task("ends", f"{drafter}, end of the context", partial(full_context, subject, drafter))


def stop_ids(subject: Subject, drafter: str, question: str) -> Finding:
    """Ends the text at each of its first tokens in turn: what is kept is the plain text up to there."""
    whole = subject.plain(question, SAMPLED | {"ignore_eos": True})[0]
    seen = Comparison()
    for place in range(min(12, len(whole))):
        wanted = SAMPLED | {"ignore_eos": True, "stop_ids": [whole[place]]}
        result = subject.result(question, Way(drafter, 8), wanted)
        kept = whole[: whole.index(whole[place]) + 1]
        expected = (kept, subject.model.text.decode(kept[:-1]), "stop")
        seen.add(f"stop at token {place}", expected, result)
    return Finding(seen.holds, seen.evidence())


def counted(subject: Subject, drafter: str, question: str) -> Finding:
    """Asks for 1 to 12 tokens with long drafts: that many come, and they are the plain text's."""
    seen = Comparison()
    for count in range(1, 13):
        wanted = GREEDY | {"ignore_eos": True, "max_tokens": count}
        result = subject.result(question, Way(drafter, 8), wanted)
        seen.add(f"max_tokens {count}", subject.plain(question, wanted), result)
        if len(result.tokens) != count:
            seen.add_text(f"max_tokens {count}", f"{len(result.tokens)} tokens came")
    return Finding(seen.holds, seen.evidence())


def stop_strings(subject: Subject, drafter: str, question: str) -> Finding:
    """Stops at pieces of the plain text, within tokens and across them: what is left ends before the first match."""
    whole = subject.plain(question, SAMPLED | {"ignore_eos": True})[1]
    seen = Comparison()
    for start in range(2, min(30, len(whole) - 6), 3):
        stop = whole[start : start + 4]
        wanted = SAMPLED | {"ignore_eos": True, "stop": [stop]}
        plain = subject.plain(question, wanted)
        seen.add(f"stop {stop!r}", plain, subject.result(question, Way(drafter, 8), wanted))
        if plain[1] != whole[: whole.index(stop)]:
            seen.add_text(f"stop {stop!r}", "plain decoding does not end before the first match")
    return Finding(seen.holds, seen.evidence())


def full_context(subject: Subject, drafter: str) -> Finding:
    """Decodes until the context is full: drafts are clipped, and the text is the plain one."""
    model = subject.model
    if model.target.max_length > 4096:
        raise NotCovered(f"the context holds {model.target.max_length} tokens: load it with at most 4096")
    words = model.text.encode(" and the dog sat on the cat", special=False)
    count = (model.target.max_length - 10) // len(words)
    prompt = model.text.decode(words * count)
    wanted: Wanted = {"temperature": 0.7, "seed": SEED, "ignore_eos": True, "max_tokens": 64}
    texts = []
    for way in (PLAIN, Way(drafter, 8)):
        request = model.stream(prompt, raw=True, **wanted | way.options())
        texts.append(request.run())
    seen = Comparison()
    seen.add("a full context", text_of(texts[0]), texts[1])
    if len(texts[0].tokens) + texts[0].prompt_tokens != model.target.max_length:
        seen.add_text("a full context", f"plain decoding ended at {len(texts[0].tokens)} tokens")
    return Finding(seen.holds, seen.evidence())
