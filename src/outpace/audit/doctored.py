"""A server's answers with one fault each: the checks of an endpoint must see every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outpace.audit.server import Answer, Server

Asked = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. group: the checks that must see it. options, answer, text: what it does to each of these."""

    name: str
    fault: str
    group: str
    options: Callable[[Asked], Asked] = lambda options: options
    answer: Callable[[Answer, Asked], Answer] = lambda answer, options: answer
    text: Callable[[str], str] = lambda text: text


class Doctored:
    """A server with a fault."""

    def __init__(self, server: Server, fault: Fault) -> None:
        self.url, self.model, self.chat = server.url, server.model, server.chat
        self._server, self._fault = server, fault

    def ask(self, prompt: str, **options: Any) -> Answer:
        return self._fault.answer(self._server.ask(prompt, **self._fault.options(options)), options)

    def stream(self, prompt: str, **options: Any) -> tuple[str, list[str]]:
        text, reasons = self._server.stream(prompt, **options)
        return self._fault.text(text), reasons


def _zeros(answer: Answer, options: Asked) -> Answer:
    return answer if answer.logprobs is None else replace(answer, logprobs=(0.0,) * len(answer.logprobs))


def _row_after(answer: Answer, options: Asked) -> Answer:
    if answer.top is None:
        return answer
    return replace(answer, top=(*answer.top[1:], *answer.top[:1]), logprobs=_looked_up(answer))


def _looked_up(answer: Answer) -> tuple[float, ...]:
    """Returns each token's log-probability in the row after its own, -20 where it is not listed there."""
    top = answer.top or ()
    shifted = (*top[1:], *top[:1])
    return tuple(law.get(token, -20.0) for token, law in zip(answer.tokens or (), shifted, strict=True))


def _drafted_counted(answer: Answer, options: Asked) -> Answer:
    if answer.usage is None:
        return answer
    more = replace(answer.usage, completion=answer.usage.completion + 2, total=answer.usage.total + 2)
    return replace(answer, usage=more)


def _another_text(answer: Answer, options: Asked) -> Answer:
    tokens = answer.tokens
    if tokens is not None and len(tokens) > 2:
        tokens = (*tokens[:2], tokens[2] + "?", *tokens[3:])
    return replace(answer, tokens=tokens, text=answer.text[:5] + "?" + answer.text[5:])


FAULTS = (
    Fault("another text", "a token of the greedy text is another", "greedy text", answer=_another_text),
    Fault("late rejection", "tokens are judged by the row after their own", "likeliest tokens", answer=_row_after),
    Fault("log-probabilities 0.0", "every log-probability is 0.0", "log-probabilities", answer=_zeros),
    Fault(
        "stop string missed",
        "stop strings are not looked for",
        "stop strings",
        options=lambda options: {name: value for name, value in options.items() if name != "stop"},
    ),
    Fault("a streamed piece lost", "the last characters do not come", "streaming", text=lambda text: text[:-3]),
    Fault(
        "one token too many",
        "max_tokens is off by one",
        "max_tokens",
        options=lambda options: {**options, "max_tokens": options["max_tokens"] + 1},
    ),
    Fault("drafted tokens counted", "usage counts tokens that did not come", "usage", answer=_drafted_counted),
    Fault(
        "randomness used again",
        "only three seeds give texts of their own",
        "sampled law",
        options=lambda options: {**options, "seed": options.get("seed", 0) % 3},
    ),
)
