"""What the text of a generation must look like: a JSON schema or a regular expression.

Only what a user writes, checked for size and shape; `constraint.py` makes masks of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

from outpace.errors import UsageError

MAX_SCHEMA = 1 << 16
"""Characters of a schema as JSON."""

MAX_DEPTH = 64
MAX_VALUES = 10_000
"""Objects, arrays, numbers, strings and keys of a schema."""

MAX_EXACT = (1 << 53) - 1
"""Numbers of a schema in size: beyond it the parser's are rounded, or beyond its integers, of which some end the
process."""

MAX_MULTIPLE = 100_000
"""What the values of multipleOf may have as least common multiple, factors 2 and 5 left out: one more state each."""

MAX_REGEX = 4096
"""Characters of a regular expression."""

MAX_REPEATS = 4096
"""What the counts of repetitions within each other may multiply to: the states of ((a{99}){99}){99} are a million."""


@dataclass(frozen=True)
class Regex:
    """The whole text matches `pattern`, in the syntax of Rust's regex crate: no look-around, no back-references.

    Raises UsageError for an empty or oversized one; what is wrong inside is found before the first token.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not 0 < len(self.pattern) <= MAX_REGEX:
            size = len(self.pattern) if isinstance(self.pattern, str) else type(self.pattern).__name__
            raise UsageError(f"a regex must have 1 to {MAX_REGEX} characters, got {size}")
        _check_unicode(self.pattern, "regex")
        check_repeats(self.pattern, "regex")


@dataclass(frozen=True)
class JsonSchema:
    """The text is one JSON value that the schema admits, written on one line as Python's json.dumps does.

    schema: a mapping, or JSON text. References must stay inside it. Strings without maxLength and arrays without
    maxItems have no end of their own: max_tokens may cut them. A keyword that cannot be kept is refused, with its
    place, before the first token. Raises UsageError for what is not a schema, or too large or deep.
    """

    schema: Mapping[str, Any] | str

    def __post_init__(self) -> None:
        found = self.parsed
        multiple = 1
        for counted, (place, value, depth) in enumerate(places(found), 1):
            if depth > MAX_DEPTH:
                raise UsageError(f"a JSON schema may nest {MAX_DEPTH} deep, got more at {place[:80]}")
            if counted > MAX_VALUES:
                raise UsageError(f"a JSON schema may hold {MAX_VALUES} values, got more")
            for text in (place, value):
                if isinstance(text, str):
                    _check_unicode(text, "JSON schema")
            if place.endswith("/pattern") and isinstance(value, str):
                check_repeats(value, f"pattern at {place}")
            if isinstance(value, int | float) and not isinstance(value, bool):
                _check_size(place, value)
                if place.endswith("/multipleOf"):
                    multiple = math.lcm(multiple, _states(value))
            if multiple > MAX_MULTIPLE:
                raise UsageError(
                    f"the multipleOf of a JSON schema, less factors of 2 and 5, may have {MAX_MULTIPLE} as least "
                    f"common multiple, got {multiple} at {place[:80]}"
                )
        if len(self.text) > MAX_SCHEMA:
            raise UsageError(f"a JSON schema may have {MAX_SCHEMA} characters, got {len(self.text)}")

    @cached_property
    def parsed(self) -> Mapping[str, Any]:
        """The schema as a mapping."""
        found: Any = self.schema
        if isinstance(found, str):
            if len(found) > MAX_SCHEMA:
                raise UsageError(f"a JSON schema may have {MAX_SCHEMA} characters, got {len(found)}")
            try:
                found = json.loads(found)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"the JSON schema is not JSON: {_one_line(error)}") from None
        if not isinstance(found, Mapping):
            raise UsageError(f"a JSON schema must be an object, got {_one_line(repr(found))}")
        return found

    @cached_property
    def text(self) -> str:
        """The schema as JSON. Its own x-guidance is left out: how the text is written is not for a schema to say."""
        try:
            kept = {key: value for key, value in self.parsed.items() if key != "x-guidance"}
            return json.dumps(kept, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the JSON schema cannot be written as JSON: {_one_line(error)}") from None


Grammar: TypeAlias = JsonSchema | Regex


def places(schema: Any) -> Iterator[tuple[str, Any, int]]:
    """Yields (JSON pointer, value, depth) of everything in a schema, outermost first; stops below MAX_DEPTH."""
    rest: list[tuple[str, Any, int]] = [("#", schema, 0)]
    while rest:
        place, value, depth = rest.pop()
        yield place, value, depth
        if depth > MAX_DEPTH:
            continue
        if isinstance(value, Mapping):
            rest += [(f"{place}/{key}", part, depth + 1) for key, part in reversed(list(value.items()))]
        elif isinstance(value, list | tuple):
            rest += [(f"{place}/{i}", part, depth + 1) for i, part in reversed(list(enumerate(value)))]


_UPPER = ("/maximum", "/exclusiveMaximum")
_SAID = ("/default", "/examples")
"""Places whose values constrain nothing."""


def _check_size(place: str, value: float) -> None:
    """Raises UsageError for a number that the parser would round; the largest one of 64 bits is a usual maximum."""
    outer = place.endswith(_UPPER) and value >= (1 << 63) - 1
    if abs(value) > MAX_EXACT and not outer and not any(said in place for said in _SAID):
        raise UsageError(
            f"a number of a JSON schema may be at most 2**53 - 1 in size, got {_one_line(value)[:40]} at {place[:80]}"
        )


def _states(value: float) -> int:
    """Returns the whole number whose remainders tell multiples of a value apart from digits, 1 for no such number."""
    if not 0 < value <= MAX_EXACT:
        return 1
    digits = int("".join(map(str, Decimal(repr(value)).as_tuple().digits)))
    for factor in (2, 5):
        while digits % factor == 0:
            digits //= factor
    return digits


_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|[()]", re.DOTALL)


def check_repeats(pattern: str, what: str) -> None:
    """Raises UsageError where counted repetitions within each other multiply to more than MAX_REPEATS."""
    inner = [1]  # the largest product so far at each open group; the last group closed is `closed`
    closed = 1
    for found in _TOKENS.finditer(pattern):
        text = found.group()
        if text == "(":
            inner.append(1)
        elif text == ")" and len(inner) > 1:
            closed = inner.pop()
            inner[-1] = max(inner[-1], closed)
        elif text[0] == "{":
            count = max(int(number[:10]) for number in found.groups() if number)
            body = closed if pattern[found.start() - 1] == ")" else 1
            inner[-1] = max(inner[-1], body * max(1, count))
            if inner[-1] > MAX_REPEATS:
                raise UsageError(
                    f"the repetitions of a {what} may multiply to {MAX_REPEATS}, got {inner[-1]} at {text!r:.40}"
                )


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the {what} is not Unicode: half of a surrogate pair at character {error.start}") from None


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
