"""Schemas and regular expressions are bounded before anything is compiled."""

from __future__ import annotations

import json

import pytest

from outpace.errors import UsageError
from outpace.grammar import MAX_DEPTH, MAX_REGEX, JsonSchema, Regex


def nested(depth: int) -> dict:
    schema: dict = {"type": "integer"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


HOSTILE = {
    "not JSON": ("{", "not JSON"),
    "no object": ("[1]", "must be an object"),
    "a number": (3, "must be an object"),
    "deep": (nested(MAX_DEPTH + 2), "nest 64 deep"),
    "deep text": ("[" * 50_000, "not JSON"),
    "long": ({"const": "x" * 70_000}, "65536 characters"),
    "long text": (json.dumps({"const": "x" * 70_000}), "65536 characters"),
    "many": ({"enum": list(range(20_000))}, "10000 values"),
    "no JSON value": ({"const": {1, 2}}, "cannot be written"),
    "no number": ({"minimum": float("nan")}, "cannot be written"),
    "beyond the integers": ({"type": "integer", "enum": [-(10**19)]}, r"at most 2\*\*53 - 1 .* at #/enum/0"),
    "rounded constant": ({"const": {"a": [2**53]}}, "got 9007199254740992 at #/const/a/0"),
    "rounded minimum": ({"properties": {"a": {"minimum": 1e300}}}, r"got 1e\+300 at #/properties/a/minimum"),
    "rounded maximum": ({"exclusiveMaximum": 2**60}, "got 1152921504606846976 at #/exclusiveMaximum"),
    "low minimum": ({"minimum": -(2**63)}, "got -9223372036854775808 at #/minimum"),
    "many remainders": ({"multipleOf": 999_983}, "100000 as least common multiple, got 999983 at #/multipleOf"),
    "remainders together": ({"allOf": [{"multipleOf": 99.7}, {"multipleOf": 991}]}, "got 988027 at #/allOf/1"),
    "repeats": ({"properties": {"a": {"pattern": "((a{99}){99}){99}"}}}, "#/properties/a/pattern may multiply"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_one_error_that_names_the_limit(name: str) -> None:
    schema, message = HOSTILE[name]
    with pytest.raises(UsageError, match=message):
        JsonSchema(schema)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**63 - 1},
        {"enum": [2**53 - 1, -1.5, True]},
        {"type": "integer", "default": 10**30},
        {"allOf": [{"multipleOf": 10**6}, {"multipleOf": 0.001}, {"multipleOf": 99_991}]},
        {"multipleOf": -3},
    ],
)
def test_numbers_that_can_be_told_apart_are_let_through(schema: dict) -> None:
    assert JsonSchema(schema).parsed == schema


def test_a_schema_that_holds_itself_ends_in_an_error() -> None:
    schema: dict = {}
    schema["items"] = schema
    with pytest.raises(UsageError, match="nest 64 deep"):
        JsonSchema(schema)


def test_text_and_mapping_are_the_same_schema() -> None:
    schema = {"type": "string", "maxLength": 3}
    assert JsonSchema(schema).text == JsonSchema(json.dumps(schema)).text


def test_a_schema_does_not_say_how_it_is_compiled() -> None:
    assert json.loads(JsonSchema({"type": "null", "x-guidance": {"lenient": True}}).text) == {"type": "null"}


@pytest.mark.parametrize("pattern", ["", "a" * (MAX_REGEX + 1), None, "((a{1000}){1000}){1000}", "(a{2,5000})"])
def test_a_hostile_regex_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="regex"):
        Regex(pattern)


@pytest.mark.parametrize("pattern", [r"(a{60}|b{60}){60}", r"\{5000\}", r"[{]5000[}]x{9}", r"(a{99})(b{99})(c{99})"])
def test_repetitions_side_by_side_or_escaped_are_not_multiplied(pattern: str) -> None:
    assert Regex(pattern).pattern == pattern
