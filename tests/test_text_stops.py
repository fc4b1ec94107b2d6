"""Stop strings: the end does not depend on how the text was cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.stops import StopScanner

letters = st.text(alphabet="abc", max_size=24)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3)


def scan(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """Returns (what was shown in all, whether a stop string ended it)."""
    scanner, shown = StopScanner(stops), ""
    for piece in pieces:
        new, stopped = scanner.feed(piece)
        shown += new
        if stopped:
            return shown, True
    return shown + scanner.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """Returns the same, from the definition: the first prefix that ends in a stop string."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(stop_lists, letters, st.lists(st.integers(0, 5)))
def test_any_cutting_ends_at_the_same_place(stops: list[str], text: str, cuts: list[int]) -> None:
    pieces, rest = [], text
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    assert scan(stops, [*pieces, rest]) == scan(stops, list(text)) == expected(stops, text)


@given(stop_lists, letters)
def test_what_is_shown_is_never_taken_back(stops: list[str], text: str) -> None:
    scanner, shown = StopScanner(stops), ""
    final, _ = expected(stops, text)
    for letter in text:
        new, stopped = scanner.feed(letter)
        shown += new
        assert final.startswith(shown)
        if stopped:
            break


def test_text_that_cannot_begin_a_stop_string_is_shown_at_once() -> None:
    scanner = StopScanner(["\n\n"])
    assert scanner.feed("one\n") == ("one", False)
    assert scanner.feed("two") == ("\ntwo", False)
    assert scanner.feed("\n\nthree") == ("", True)
    assert scanner.found == "\n\n"
    assert scanner.feed("more") == ("", True)


def test_longer_of_two_stops_that_end_together_wins() -> None:
    assert scan(["c", "abc"], ["xab", "cd"]) == ("x", True)


def test_stop_inside_a_longer_stop_wins_when_it_ends_first() -> None:
    assert scan(["abcd", "b"], ["xabcd"]) == ("xa", True)


@pytest.mark.parametrize("stops", [[""], ["a", ""], "ab", [b"a"], [1]])
def test_wrong_stops_are_refused(stops: object) -> None:
    with pytest.raises(UsageError, match="stop strings must be a list of texts that are not empty"):
        StopScanner(stops)  # type: ignore[arg-type]


def test_a_stop_that_no_text_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="a stop string must be Unicode, got half of a surrogate pair in 'a"):
        StopScanner(["b", "a\ud800"])
