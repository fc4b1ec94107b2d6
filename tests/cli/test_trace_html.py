"""The trace's page: well formed, alone in the world, and deaf to what the text tries to tell the browser."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from outpace.cli.trace_html import Piece, page
from outpace.explain import explain

HOSTILE = ["<script>alert(1)</script>", "</style></div>&amp;", "\" onmouseover='x'", "\x1b[31m\x00", "日\n\t"]
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Reader(HTMLParser):
    """Checks that tags nest, and collects them with their attributes and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


@pytest.fixture(params=["rejection", "coupled"])
def html(request: pytest.FixtureRequest) -> str:
    found = explain((0.5, 0.2, 0.1, 0.1, 0.1), (0.2,) * 5, rule=request.param, rounds=30, draft_length=3, samples=1)
    pieces = [
        Piece(HOSTILE[token], origin, one.number)
        for one in found.rounds
        for token, origin in zip(one.tokens, one.origins, strict=True)
    ]
    return page(HOSTILE[0], {HOSTILE[1]: HOSTILE[2]}, pieces, found.rounds, HOSTILE.__getitem__)


@pytest.fixture
def reader(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def test_it_is_well_formed(reader: Reader) -> None:
    assert reader.open == []
    assert [tag for tag, _ in reader.tags][:2] == ["html", "head"]


def test_nothing_in_it_runs_or_loads(reader: Reader) -> None:
    assert {tag for tag, _ in reader.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "base", "form"})
    for _, attributes in reader.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")


def test_the_browser_is_told_to_load_nothing(html: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'" in html
    assert "http" not in html.replace("http-equiv", "")


def test_hostile_text_is_shown_as_it_is(reader: Reader) -> None:
    text = "".join(reader.text)
    assert HOSTILE[0] in text
    assert HOSTILE[1] in text
    assert HOSTILE[2] in text


def test_control_characters_are_made_visible(html: str) -> None:
    assert "\x1b" not in html
    assert "\x00" not in html
    assert "␛[31m␀" in html


def test_every_round_can_be_reached_from_its_text(reader: Reader) -> None:
    places = {attributes["id"] for tag, attributes in reader.tags if tag == "section"}
    links = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert links == {f"#{place}" for place in places}
    assert len(places) == 30


def test_rejected_guesses_are_struck_through(reader: Reader) -> None:
    assert any(tag == "s" for tag, _ in reader.tags)


def test_it_fits_a_phone_and_the_dark(html: str) -> None:
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "prefers-color-scheme: dark" in html
    assert "max-width: 34rem" in html
