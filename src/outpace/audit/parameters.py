"""Every sampling parameter at an extreme value: the text is plain decoding's, and the parameter is kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from outpace.audit.report import Finding, Task
from outpace.audit.subject import GREEDY, PLAIN, SAMPLED, SEED, Comparison, Subject, Wanted, Way, text_of
from outpace.grammar import JsonSchema, Regex
from outpace.result import Result
from outpace.types import EMPTY, Prompt

GROUP = "parameters"
LAWS = (GREEDY | {"seed": SEED}, {"temperature": 0.8, "seed": SEED})
WORDS = "[a-z]{1,9}( [a-z]{1,9}){0,3}"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
Promise = Callable[[Result], str | None]
"""(result) -> how it breaks what the parameter promises, None if it does not."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """A parameter at an extreme value. promise: what must be true of the result beside its being plain decoding's.

    like: options whose text it must have, where the extreme is another parameter's way of saying the same.
    """

    name: str
    wanted: Wanted
    promise: Promise = lambda result: None
    like: Wanted | None = None


def parameter_tasks(subject: Subject, drafter: str, lengths: Sequence[int], tokens: int) -> Iterator[Task]:
    """Yields one check a parameter, then those of log-probabilities, seeds and choices; texts of so many tokens."""
    subject = replace(subject, max_tokens=tokens)
    for extreme in extremes(subject):
        yield Task(GROUP, f"{drafter}, {extreme.name}", partial(kept, subject, drafter, extreme, lengths))
    yield Task(GROUP, f"{drafter}, logprobs", partial(log_probabilities, subject, drafter))
    yield Task(GROUP, f"{drafter}, n = 3", partial(choices, subject, drafter))
    yield Task(GROUP, f"{drafter}, seed", partial(seeds, subject, drafter))


def kept(subject: Subject, drafter: str, extreme: Extreme, lengths: Sequence[int]) -> Finding:
    """Compares texts at temperature 0 and above with the plain ones, under drafts of these lengths."""
    question = subject.questions[1]
    seen = Comparison()
    for law in LAWS:
        wanted = law | extreme.wanted
        label = f"temperature {wanted['temperature']}"
        expected = subject.plain(question, wanted)
        if extreme.like is not None:
            same = subject.plain(question, law | extreme.like)
            seen.add_text(label, None if same == expected else f"plain decoding has not the text of {extreme.like}")
        for length in lengths:
            result = subject.result(question, Way(drafter, length), wanted)
            seen.add(f"{label}, draft length {length}", expected, result)
            seen.add_text(f"{label}, draft length {length}", extreme.promise(result))
    return Finding(seen.holds, seen.evidence() if seen.drafted else f"{seen.equal} of {seen.texts} hold, no drafts")


def extremes(subject: Subject) -> list[Extreme]:
    """Returns the parameters at their extremes; bans and biases are of tokens of the plain text."""
    text = subject.model.text
    plain = subject.plain(subject.questions[1], GREEDY | {"ignore_eos": True})[0]
    common = sorted(set(plain))
    few = common[:6]
    first = common[0]
    stop = text.decode(plain[3:5])
    vocab = subject.model.target.vocab_size
    endings = subject.model.target.eos_ids | text.eos_ids

    def only(tokens: list[int]) -> Promise:
        return lambda result: _first(result, lambda token: token not in tokens, "is not allowed")

    def never(tokens: list[int]) -> Promise:
        return lambda result: _first(result, lambda token: token in tokens, "is banned")

    def at_least(count: int) -> Promise:
        def promise(result: Result) -> str | None:
            return None if len(result.tokens) >= count else f"it ends after {len(result.tokens)} tokens"

        return promise

    def without_endings(result: Result) -> str | None:
        return _first(result, lambda token: token in endings, "ends a text") if result.finish == "stop" else None

    def of_form(fits: Callable[[str], object]) -> Promise:
        def promise(result: Result) -> str | None:
            if result.finish == "length" or fits(result.text):
                return None
            return f"{result.text!r} is not of the form that was asked for"

        return promise

    def without_stop(result: Result) -> str | None:
        return f"the stop string {stop!r} is in the text" if stop in result.text else None

    return [
        Extreme("temperature 0.000001", {"temperature": 1e-6}, like=GREEDY),
        Extreme("temperature 100", {"temperature": 100.0}),
        Extreme("top_k 1", {"top_k": 1}, like=GREEDY),
        Extreme("top_k of the whole vocabulary", {"top_k": vocab}, like={}),
        Extreme("top_p 0.000001", {"top_p": 1e-6}, like=GREEDY),
        Extreme("min_p 0.999999", {"min_p": 0.999999}, like=GREEDY),
        Extreme("repetition_penalty 100", {"repetition_penalty": 100.0}),
        Extreme("repetition_penalty 0.01", {"repetition_penalty": 0.01}),
        Extreme("presence_penalty 2", {"presence_penalty": 2.0}),
        Extreme("presence_penalty -2", {"presence_penalty": -2.0}),
        Extreme("frequency_penalty 2", {"frequency_penalty": 2.0}),
        Extreme("frequency_penalty -2", {"frequency_penalty": -2.0}),
        Extreme("logit_bias 100", {"logit_bias": {first: 100.0}}, only([first, *endings])),
        Extreme("logit_bias -100", {"logit_bias": dict.fromkeys(common, -100.0)}),
        Extreme("banned, every token of the text", {"banned": common}, never(common)),
        Extreme("allowed, six tokens", {"allowed": few}, only(few)),
        Extreme("allowed, one token", {"allowed": [first]}, only([first])),
        Extreme("min_tokens", {"min_tokens": subject.max_tokens, "stop_ids": common}, at_least(subject.max_tokens)),
        Extreme("stop string", {"stop": [stop], "ignore_eos": True}, without_stop),
        Extreme("stop_ids", {"stop_ids": common[-3:]}),
        Extreme("ignore_eos", {"ignore_eos": True}, without_endings),
        Extreme("max_tokens 1", {"max_tokens": 1}, lambda r: None if len(r.tokens) == 1 else "more than one token"),
        Extreme("regex", {"grammar": Regex(WORDS)}, of_form(partial(re.fullmatch, WORDS))),
        Extreme("JSON schema", {"grammar": JsonSchema(PERSON)}, of_form(json.loads)),
        Extreme(
            "all at once",
            {"top_k": 30, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.2, "presence_penalty": 0.3}
            | {"frequency_penalty": 0.4, "banned": [first], "logit_bias": {common[-1]: 2.0}, "min_tokens": 5},
            never([first]),
        ),
    ]  # fmt: skip


def _first(result: Result, wrong: Callable[[int], bool], why: str) -> str | None:
    found = next((token for token in result.tokens if wrong(token)), None)
    return None if found is None else f"token {found} {why}"


def log_probabilities(subject: Subject, drafter: str) -> Finding:
    """Compares log-probabilities with plain decoding's, and with those of rows that a fresh session scores."""
    question = subject.questions[-1]
    wanted = SAMPLED | {"logprobs": 3, "max_tokens": subject.max_tokens}
    expected = (subject.truth or subject).result(question, PLAIN, wanted)
    result = subject.result(question, Way(drafter, 5), wanted)
    found = result.logprobs or ()
    if [one.token for one in found] != list(result.tokens):
        return Finding(False, f"{len(found)} log-probabilities for {len(result.tokens)} tokens")
    if found != expected.logprobs and subject.model.target.bit_exact:
        return Finding(False, "they are not plain decoding's")
    largest = 0.0
    opened = subject.request(question, PLAIN, wanted)
    prompt = tuple(opened.round.committed)
    opened.close()
    for place in range(0, len(found), 5):
        session, _ = subject.model.target.open(Prompt((*prompt, *result.tokens[:place])))
        [scores] = subject.model.target.score_many([(session, EMPTY)])
        row = np.asarray(scores.logits[0], dtype=np.float64)
        session.close()
        exact = float(row[found[place].token] - row.max() - math.log(np.exp(row - row.max()).sum()))
        largest = max(largest, abs(exact - found[place].logprob))
    return Finding(
        largest < 1e-4, f"{len(found)} equal plain decoding's; off by {largest:.1g} from a fresh pass at most"
    )


def choices(subject: Subject, drafter: str) -> Finding:
    """Compares each of three choices with the text of its own call."""
    question = subject.questions[0]
    wanted, options = SAMPLED, SAMPLED | Way(drafter, 4).options()
    raw = not subject.model.text.has_chat_template
    results = subject.model.generate(question, raw=raw, n=3, max_tokens=subject.max_tokens, **options).choices
    seen = Comparison()
    for result in results:
        expected = subject.plain(question, wanted | {"choice": result.choice})
        seen.add(f"choice {result.choice}", expected, result)
    if len({result.tokens for result in results}) < 2:
        seen.add_text("choices", "three choices at temperature 1 are the same text")
    return Finding(seen.holds, seen.evidence())


def seeds(subject: Subject, drafter: str) -> Finding:
    """The smallest and largest seeds give plain decoding's texts; other seeds give other texts."""
    question = subject.questions[0]
    seen, texts = Comparison(), set()
    for seed in (0, 1, -1, 2**63 - 1, 2**64 - 1):
        wanted = {"temperature": 1.0, "seed": seed}
        result = subject.result(question, Way(drafter, 4), wanted)
        seen.add(f"seed {seed}", subject.plain(question, wanted), result)
        texts.add(text_of(result))
    if len(texts) < 4:  # -1 and 2^64 - 1 are the same number
        seen.add_text("seeds", f"four seeds at temperature 1 give {len(texts)} texts")
    return Finding(seen.holds, seen.evidence())
