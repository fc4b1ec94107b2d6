"""`outpace tune --endpoint` on a scripted server, and its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from servers import Scripted


def test_the_command_shows_it_and_exits_with_1_when_the_server_is_lost(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.audit.server.connect", lambda *_, **__: Scripted(ends=20))
    done = run("tune", "--endpoint", "http://scripted", "--max-tokens", "16", "--repeats", "1")
    assert done.exit_code == 1
    assert "tokens/s of one request" in done.stdout
    assert "216 of 324 drafted tokens were accepted" in done.stdout
    assert done.stderr.startswith("ended early, what was measured is above: http://scripted/v1 does not answer")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("options", "asked"), [([], None), (["--model", "theirs"], "theirs")])
def test_the_model_that_is_asked_for_is_the_one_named_or_left_to_the_server(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, options: list[str], asked: str | None
) -> None:
    names: list[str | None] = []

    def connect(url: str, model: str | None = None, **how: Any) -> Scripted:
        names.append(model)
        return Scripted(ends=20)

    monkeypatch.setattr("outpace.audit.server.connect", connect)
    plain = ["--plain-fields", '{"speculation": {"off": true}}']
    run("tune", "--endpoint", "http://scripted", "--max-tokens", "16", "--repeats", "1", *plain, *options)
    assert names == [asked, asked]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--endpoint", "nowhere"], "a server's URL must be http://HOST[:PORT][/PATH], got 'nowhere'"),
        (["--endpoint", "http://127.0.0.1:9"], "http://127.0.0.1:9 does not answer"),
        (["--endpoint", "http://x", "--draft", "m"], "--draft is about a model on this machine"),
        (["--endpoint", "http://x", "--no-save"], "--save is about a model on this machine"),
        (["--plain-fields", "{}"], "--plain-fields is of requests to a server"),
    ],
)
def test_a_mistake_is_one_line(run: Callable[..., Any], options: list[str], said: str) -> None:
    done = run("tune", *options)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
