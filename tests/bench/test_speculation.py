"""Two runs of one request: the ratio, and where the texts part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outpace.bench.speculation import Comparison
from outpace.result import Result, Seconds

PLAIN = Result(
    text="the sea is blue",
    tokens=(1, 2, 3, 4),
    steps=(),
    finish="stop",
    prompt_tokens=3,
    seconds=Seconds(0, 0, 4.0, 0, 0, 0),
    operations_factor=1.0,
    draft_bytes=0,
    reproducible=True,
    model="m",
    engine="fake",
    drafter="none",
    rule="coupled",
    lossless=True,
    seed=1,
    threads=1,
    reason="as asked",
    fault=None,
)


def other(text: str = PLAIN.text, tokens: tuple[int, ...] = PLAIN.tokens) -> Comparison:
    return Comparison(replace(PLAIN, text=text, tokens=tokens, seconds=Seconds(0, 0, 2.0, 0, 0, 0)), PLAIN)


def test_the_speed_up_is_the_ratio_of_decoding_speeds() -> None:
    assert other().speedup == pytest.approx(2)
    assert other(tokens=(1, 2)).speedup == pytest.approx(1)


def test_the_same_tokens_are_identical() -> None:
    assert other().identical
    assert other().first_difference() is None


def test_the_first_difference_is_found_in_tokens_and_in_text() -> None:
    found = other("the sea was blue", (1, 2, 9, 4)).first_difference()
    assert found is not None
    assert (found.token, found.before, found.speculative, found.plain) == (2, "the sea ", "was blue", "is blue")


def test_a_text_that_ends_early_parts_where_it_ends() -> None:
    found = other("the sea", (1, 2)).first_difference()
    assert found is not None
    assert (found.token, found.speculative, found.plain) == (2, "", " is blue")
