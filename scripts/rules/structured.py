"""Structured output on the embedded model: every text fits, drafts change nothing, and what speculation gains."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from random import Random
from typing import Any

from acceptance import NotRun, Outcome
from first_light.common import EMBEDDED, SEED, TARGET, load

from outpace import JsonSchema
from outpace.api import Model
from outpace.control import FixedController
from outpace.drafters.ngram import NGramSession
from outpace.generation import Generation
from outpace.options import Options
from outpace.result import Result
from outpace.types import Budget, Context, Draft, Drafter, DraftSession, LawMaker, Prompt

TEXT = {"type": "string", "maxLength": 24}


def record(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "person": (
        "Describe a person as JSON: name, age, email, tags.",
        record(
            name=TEXT,
            age={"type": "integer", "minimum": 0, "maximum": 130},
            email={"type": "string", "pattern": "^[a-z]{1,12}@[a-z]{1,12}\\.(com|org)$"},
            tags={"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        ),
    ),
    "weather": (
        "Give tomorrow's weather for Paris as JSON.",
        record(
            city=TEXT,
            condition={"enum": ["sunny", "cloudy", "rain", "snow"]},
            celsius={"type": "number", "minimum": -60, "maximum": 60, "multipleOf": 0.5},
            windy={"type": "boolean"},
            note={"anyOf": [{"type": "null"}, TEXT]},
        ),
    ),
    "order": (
        "Write an order of two items as JSON.",
        record(
            id={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
            lines={
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": record(sku=TEXT, quantity={"type": "integer", "minimum": 1, "maximum": 99}),
            },
            paid={"type": "boolean"},
        ),
    ),
    "call": (
        "Which function would you call to find a cheap flight to Rome?",
        {
            "anyOf": [
                record(
                    function={"const": "search_flights"}, arguments=record(destination=TEXT, most={"enum": [1, 2]})
                ),
                record(function={"const": "no_function"}, arguments=record(reason=TEXT)),
            ]
        },
    ),
    "tree": (
        "Draw a family tree as JSON.",
        {
            "$defs": {
                "leaf": record(name={"type": "string", "maxLength": 12}),
                "node": record(
                    name={"type": "string", "maxLength": 12},
                    children={"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 3},
                ),
            },
            "$ref": "#/$defs/node",
        },
    ),
}
"""Strings and arrays are bounded, so every legal text is shorter than MOST tokens."""

MOST = 400
SEEDS = 40


class Scripted:
    """A drafter that knows the text that is to come: `legal` copies it, `illegal` never, `mixed` by chance."""

    drafts_trees = False
    self_limiting = False
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, name: str, truth: list[int], control: int, vocab_size: int) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self._truth, self._control = truth, control

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return NGramSession(prompt.ids, 1)

    def propose_many(self, work: list[tuple[NGramSession, Budget]]) -> list[Draft]:  # type: ignore[override]
        return [self._draft(len(session.history.tokens), budget.depth) for session, budget in work]

    def _draft(self, done: int, depth: int) -> Draft:
        chance = Random(done)
        right = self._truth[done : done + depth]
        if self.name == "illegal":
            return Draft.chain([self._control] * depth)
        if self.name == "mixed":
            right = [token if chance.random() < 0.7 else chance.randrange(self.vocab_size) for token in right]
        return Draft.chain(right)


def generate(model: Model, prompt: str, fake: Drafter | None, **options: Any) -> Result:
    """Returns the generation, drafted by `fake` in chains of four where one is given."""
    plan = model._plan(Options(max_tokens=MOST, **options))
    if fake is not None:
        plan = replace(plan, drafter=fake, controller=FixedController(4))
    ids = model._ids(prompt, False, None)
    return Generation(
        model.target, model.text, ids, plan, max_tokens=MOST, stop=(), observer=None, load_seconds=0.0
    ).run()


def texts() -> Iterator[Outcome]:
    """200 texts of five schemas, and each of them again under three drafters; greedy, every tenth of them."""
    if find_spec("llguidance") is None or find_spec("jsonschema") is None:
        raise NotRun("pip install 'outpace[test]'")
    import jsonschema

    model = load(EMBEDDED)
    control = next(iter(model.text.vocabulary.of_kind(3)))
    valid = total = 0
    different = dict.fromkeys(("legal", "illegal", "mixed"), 0)
    for prompt, schema in SCHEMAS.values():
        for number in range(SEEDS):
            options = {
                "grammar": JsonSchema(schema),
                "temperature": 1.0 if number % 10 else 0.0,
                "seed": SEED + number,
                "draft_length": 4,
            }
            plain = generate(model, prompt, None, **options | {"drafter": "none", "draft_length": None})
            total += 1
            try:
                jsonschema.validate(json.loads(plain.text), schema)
                valid += plain.finish == "stop"
            except (ValueError, jsonschema.ValidationError):
                pass
            truth = [*model._ids(prompt, False, None), *plain.tokens]
            for name in different:
                drafter = Scripted(name, truth, control, model.target.vocab_size)
                different[name] += generate(model, prompt, drafter, **options).tokens != plain.tokens
    yield Outcome("texts of five schemas that parse and validate", f"{valid} of {total}", "all", valid == total)
    for name, count in different.items():
        figure = f"{total - count} of {total} texts are plain constrained decoding's"
        yield Outcome(f"drafts {name if name == 'mixed' else 'always ' + name}", figure, "all", count == 0)


def speed(name: str) -> Iterator[Outcome]:
    """Tokens a second of JSON, default settings against plain, greedy; the runs interleaved, the best of three."""
    if find_spec("llguidance") is None:
        raise NotRun("pip install 'outpace[structured]'")
    model = load(name)
    ratios, rates = [], []
    for prompt, schema in SCHEMAS.values():
        best: dict[str, float] = {}
        for repeat in range(3):
            for drafter in ("none", "auto") if repeat % 2 else ("auto", "none"):
                result = model.generate(prompt, grammar=JsonSchema(schema), drafter=drafter, max_tokens=MOST)
                rate = len(result.tokens) / result.seconds.decode
                best[drafter] = max(best.get(drafter, 0.0), rate)
        ratios.append(best["auto"] / best["none"])
        rates.append(best["auto"])
    yield Outcome(f"{name}, JSON, speculative against plain",
                  f"{statistics.geometric_mean(ratios):.2f} times, {statistics.median(rates):.0f} tokens/s",
                  "reported", True, f"{min(ratios):.2f} to {max(ratios):.2f} by schema")  # fmt: skip


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("structured", "structured output: texts fit their schema whatever is drafted", texts),
    ("structured-speed", "structured output: speculative against plain", lambda: speed(EMBEDDED)),
    ("pair-structured-speed", "structured output on the 1.5B: speculative against plain", lambda: speed(TARGET)),
]
