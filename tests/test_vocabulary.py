"""Vocabularies are compared by their tokens, not by their rows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from outpace.vocabulary import Kind, Vocabulary, compare, end_of_generation

N, C, U = Kind.NORMAL, Kind.CONTROL, Kind.UNUSED


def vocabulary(*tokens: tuple[str, int]) -> Vocabulary:
    return Vocabulary([token for token, _ in tokens], np.array([kind for _, kind in tokens], np.int8))


BASE = [("a", N), ("b", N), ("<s>", C)]


def test_equal_vocabularies_are_the_same() -> None:
    assert str(compare(vocabulary(*BASE), vocabulary(*BASE))) == "same vocabulary"


@pytest.mark.parametrize("padding", [[("[PAD3]", U)], [("[PAD3]", U), ("[PAD4]", U)]])
def test_padded_rows_do_not_count(padding: list[tuple[str, int]]) -> None:
    for pair in ((BASE, BASE + padding), (BASE + padding, BASE), ([*BASE, ("x", U)], BASE + padding)):
        assert compare(*(vocabulary(*tokens) for tokens in pair)).verdict == "same"


def test_special_tokens_that_differ_are_listed() -> None:
    result = compare(vocabulary(*BASE, ("<x>", C)), vocabulary(*BASE[:2], ("<t>", C), ("[PAD3]", U), ("<y>", C)))
    assert result.verdict == "special"
    assert result.usable
    assert str(result) == (
        "same vocabulary but for 3 special tokens: id 2 is '<s>' in the target, '<t>' in the draft; "
        "id 3 is '<x>' in the target, None in the draft; id 4 is None in the target, '<y>' in the draft"
    )


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ([("a", N), ("c", N), ("<s>", C)], "id 1 is 'b' in the target, 'c' in the draft"),
        ([("a", N), ("b", U), ("<s>", C)], "id 1 is 'b' in the target, None in the draft"),
        ([("a", N), ("b", N)], None),
        ([*BASE, ("d", N)], "id 3 is None in the target, 'd' in the draft"),
        ([("b", N), ("a", N), ("<s>", C)], "id 0 is 'a' in the target, 'b' in the draft"),
    ],
)
def test_ordinary_tokens_that_differ_make_it_another_vocabulary(
    draft: list[tuple[str, int]], message: str | None
) -> None:
    result = compare(vocabulary(*BASE), vocabulary(*draft))
    if message is None:
        assert result.verdict == "special"
    else:
        assert not result.usable
        assert str(result) == f"different vocabularies: {message}"


def test_a_token_of_another_kind_is_the_same_token() -> None:
    assert compare(vocabulary(("</s>", N)), vocabulary(("</s>", C))).verdict == "same"


def test_large_vocabularies_are_compared_quickly() -> None:
    big = [Vocabulary([f"t{i}" for i in range(150_000 + n)], np.full(150_000 + n, N, np.int8)) for n in (0, 0)]
    started = time.perf_counter()
    assert compare(*big).verdict == "same"
    assert time.perf_counter() - started < 5  # seconds; it takes a few milliseconds


def test_only_control_tokens_end_a_generation() -> None:
    tokens, kinds = ["</s>", "<|im_end|>", "<|eot_id|>", "x"], np.array([N, C, C, C])
    assert end_of_generation(tokens, kinds) == {1, 2}
