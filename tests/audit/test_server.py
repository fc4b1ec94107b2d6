"""The client of a server: whatever comes back, there is one clear error and nothing hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outpace.audit.answers import first_difference, reported_law
from outpace.audit.report import NotCovered
from outpace.audit.server import Answer, BadAnswer, Refused, Server, connect
from outpace.errors import OutpaceError, UsageError

GOOD = {
    "choices": [
        {
            "text": " a b",
            "finish_reason": "length",
            "logprobs": {
                "tokens": [" a", " b"],
                "token_logprobs": [-0.1, -1.0],
                "top_logprobs": [{" a": -0.1}, {" c": -0.9, " b": -1.0}],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
CHAT = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "hi", "logprob": -0.5, "top_logprobs": []}]},
        }
    ]
}


class Scripted(BaseHTTPRequestHandler):
    """Answers by `paths`: path -> (status, body), a body that is None never ending."""

    paths: dict[str, tuple[int, bytes | None]]

    def do_GET(self) -> None:
        status, body = self.paths.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.end_headers()
        if body is None:
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)
        else:
            self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, dict]]:
    paths: dict[str, tuple[int, bytes | None]] = {}
    handler = type("Handler", (Scripted,), {"paths": paths})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", paths
        http.shutdown()


def asked(url: str, **options) -> Server:
    return Server(url, "m", 5.0, **options)


def body(record) -> bytes:
    return json.dumps(record).encode()


def test_it_finds_the_path_the_model_and_the_way_of_asking(server):
    url, paths = server
    paths["/v1/models"] = (200, body({"data": [{"id": "one"}]}))
    paths["/v1/chat/completions"] = (200, body(CHAT))
    found = connect(url)
    assert (found.url, found.model, found.chat) == (url + "/v1", "one", True)
    paths["/v1/completions"] = (200, body(GOOD))
    assert not connect(url + "/v1/").chat


def test_an_answer_is_read_with_its_log_probabilities(server):
    url, paths = server
    paths["/completions"] = (200, body(GOOD))
    answer = asked(url).ask("x", max_tokens=2)
    assert (answer.text, answer.finish) == (" a b", "length")
    assert answer.tokens == (" a", " b")
    assert answer.logprobs == (-0.1, -1.0)
    assert answer.usage
    assert answer.usage.total == 5
    paths["/chat/completions"] = (200, body(CHAT))
    assert asked(url, chat=True).ask("x", logprobs=5).logprobs == (-0.5,)


@pytest.mark.parametrize(
    "record",
    [
        b"not JSON",
        b"[]",
        b"{}",
        b"[" * 100_000,
        body({"choices": []}),
        body({"choices": [{"text": 7}]}),
        body(GOOD | {"usage": {"prompt_tokens": "three"}}),
        body({"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [None]}}]}),
        body({"choices": [{"text": "a", "logprobs": {"tokens": "a"}}]}),
    ],
)
def test_a_wrong_answer_is_said_to_be_wrong(server, record):
    url, paths = server
    paths["/completions"] = (200, record)
    with pytest.raises(BadAnswer):
        asked(url).ask("x")


def test_a_refusal_is_told_from_a_failure(server):
    url, paths = server
    paths["/completions"] = (400, b'{"error": "no logprobs"}')
    with pytest.raises(Refused, match=r"the server refuses \(400\): .*no logprobs"):
        asked(url).ask("x")
    paths["/completions"] = (500, b"oh")
    with pytest.raises(BadAnswer, match="status 500: oh"):
        asked(url).ask("x")


def test_a_server_that_never_ends_is_left(server):
    url, paths = server
    paths["/completions"] = (200, None)
    start = time.monotonic()
    with pytest.raises(OutpaceError, match=r"does not answer: TimeoutError an answer took more than 0.2 s"):
        Server(url, "m", 0.2).ask("x")
    assert time.monotonic() - start < 60


def test_a_stream_must_end(server):
    url, paths = server
    piece = b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n'
    paths["/completions"] = (200, piece + b": a comment\n\ndata: [DONE]\n\n")
    assert asked(url).stream("x") == ("a", ["stop"])
    paths["/completions"] = (200, piece)
    with pytest.raises(BadAnswer, match=r"without \[DONE\]"):
        asked(url).stream("x")


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://a", "http://", "http://a:b", "http://[::1"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(UsageError, match="must be http://HOST"):
        connect(url)


def test_nobody_at_home_is_one_sentence():
    with pytest.raises(OutpaceError, match="does not answer"):
        connect("http://127.0.0.1:9", timeout=1)
    with pytest.raises(UsageError, match="timeout must be above 0"):
        connect("http://127.0.0.1:9", timeout=0)


def answer(*tokens: str, top=None) -> Answer:
    laws = tuple(top) if top else tuple({token: -0.1} for token in tokens)
    return Answer("".join(tokens), "length", None, tokens, (-0.1,) * len(tokens), laws)


def test_a_difference_is_classed_by_the_references_margin():
    reference = answer("a", "b", top=[{"a": -0.1}, {"b": -0.70, "c": -0.72}])
    near = first_difference(answer("a", "c"), reference)
    assert near
    assert (near.place, round(near.margin, 3)) == (1, 0.02)
    assert near.described(0.1) == "token 1 is 'c', not 'b': a numeric near-tie, 0.02 nats apart"
    far = first_difference(answer("a", "d"), reference)
    assert far
    assert far.margin is None
    assert "a fault" in far.described(0.1)
    assert first_difference(reference, reference) is None


def test_a_reported_law_has_cells_and_counts():
    top = [{"a": -0.693147, "b": -1.386294}, {"a": -0.693147, "b": -0.693147}]
    answers = [answer("a", "a", top=top)] * 60 + [answer("a", "b", top=top)] * 60 + [answer("z", "a", top=top)] * 40
    found = reported_law(answers, 160, 0.05)
    assert sum(found.outcomes.law.values()) == pytest.approx(1)
    assert sum(found.counts.values()) == 160
    assert set(found.counts) <= set(found.outcomes.law)
    two = [answer("a", "a", top=top), answer("a", "a", top=[{"a": -2.0}, top[1]])]
    assert "in one answer" in reported_law(two, 2, 0.05).inconsistent
    assert reported_law(two, 2, 1.5).inconsistent == ""
    with pytest.raises(NotCovered):
        reported_law([Answer("a", "length")], 1, 0.05)
