"""Bad luck and bad will: bodies made up, a drafter that breaks, a client gone in the prefill, SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import httpx
import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from thread_server import OnThread

from outpace.drafters.suffix import SuffixSession
from outpace.serve.scheduler import Limits
from outpace.serve.settings import Settings

pytestmark = pytest.mark.embedded

NAME = "smollm2-135m"
COUNTING = [{"role": "user", "content": "Count from one to ten in words, then again."}]
BODY = {"model": NAME, "messages": COUNTING, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
EXAMPLES = 12
"""Bodies of each kind; the seed is fixed."""


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def fits(case):
    """Makes a body affordable and lets it through to what is behind the model's name."""
    if isinstance(case.body, dict):
        if "model" in case.body:
            case.body["model"] = NAME
        for name, most in (("n", 3), ("max_tokens", 8), ("max_completion_tokens", 8)):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], most)
        if "max_completion_tokens" not in case.body:
            case.body.setdefault("max_tokens", 8)
    return case


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/v1/chat/completions", True),
        ("/v1/chat/completions", False),
        ("/v1/completions", True),
        ("/v1/completions", False),
        ("/v1/models/{name}", True),
    ],
)
def test_whatever_a_schema_yields_the_server_answers_as_it_says(embedded, path, good):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, given, settings
    from schemathesis import GenerationMode, checks

    limits = Limits(slots=8, queue=64)
    with OnThread(embedded, Settings(names=(NAME,), limits=limits)) as running:
        schema = schemathesis.openapi.from_url(running.url + "/openapi.json")
        operation = next(iter(schema[path].values()))
        seen = Counter()
        mode = GenerationMode.POSITIVE if good else GenerationMode.NEGATIVE

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def check(case):
            answer = fits(case).call(timeout=300)
            seen[answer.status_code] += 1
            assert answer.status_code in (200, 400, 404, 405, 413, 429), answer.content
            if answer.status_code >= 400:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            case.validate_response(answer, checks=(checks.not_a_server_error, checks.response_schema_conformance))

        check()
        assert sum(seen.values()) >= 1
        assert text_of(running.post(**BODY)) == text_of(running.post(**BODY, speculation={"off": True}))


def test_a_drafter_that_breaks_leaves_one_request_plain_and_says_so(served, monkeypatch):
    expected = text_of(served.post(**BODY))
    proposed, lock = SuffixSession.propose, threading.Lock()
    broken = []

    def propose(self, budget):
        with lock:
            if not broken:
                broken.append(self)
        if self is broken[0] and budget.depth:
            raise ArithmeticError("the tree has no root")
        return proposed(self, budget)

    monkeypatch.setattr(SuffixSession, "propose", propose)
    answers = [None, None]

    def ask(i):
        answers[i] = served.post(**BODY)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [text_of(answer) for answer in answers] == [expected, expected]
    faults = [answer.json()["speculation"]["fault"] for answer in answers]
    assert sorted(fault or "" for fault in faults) == ["", "ArithmeticError: the tree has no root"]
    text = httpx.get(served.url + "/metrics").text
    assert "outpace:drafter_faults_total 1.0" in text


def test_a_client_that_vanishes_in_the_prefill_frees_its_place(served):
    long = {**BODY, "messages": [{"role": "user", "content": "word " * 900}], "stream": True}
    body = json.dumps(long).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    scheduler = served.service.scheduler
    for _ in range(5):
        with socket.create_connection(served.url.removeprefix("http://").split(":")) as connection:
            connection.sendall(head.encode() + body)
            until = time.monotonic() + 20
            while not scheduler._opening and not scheduler._running and time.monotonic() < until:
                time.sleep(0.0005)
    until = time.monotonic() + 20
    while scheduler.open and time.monotonic() < until:
        time.sleep(0.01)
    assert not scheduler.open
    assert served.post(**BODY).status_code == 200


def launched(model, port):
    """Starts the command and waits until it takes requests."""
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--port", str(port)]
    command += ["--model", str(model), "--name", NAME, "--context", "1024"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    return process, process.stderr.readline().split()[2].removesuffix("/v1")


def test_after_sigkill_it_starts_again_on_the_same_port_and_answers_the_same(embedded_model, solo):
    expected = solo.generate(COUNTING, max_tokens=40, ignore_eos=True).text
    process, url = launched(embedded_model, 0)
    try:
        with httpx.stream(
            "POST", url + "/v1/chat/completions", json={**BODY, "stream": True, "max_tokens": 900}, timeout=120
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGKILL)
            with pytest.raises(httpx.HTTPError):
                list(lines)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    again, same = launched(embedded_model, url.rpartition(":")[2])
    try:
        assert same == url
        assert text_of(httpx.post(url + "/v1/chat/completions", json=BODY, timeout=120)) == expected
    finally:
        again.kill()
        again.wait()
        again.stderr.close()


def test_a_fault_of_ours_is_500_in_the_same_shape(embedded, monkeypatch):
    def broken(*_, **__):
        raise ArithmeticError("a secret of the prompt")

    monkeypatch.setattr(embedded.text, "render_chat", broken)
    with OnThread(embedded, Settings(names=(NAME,))) as running:
        answer = running.post(**BODY)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "the server failed (ArithmeticError)"
        monkeypatch.undo()
        assert running.post(**BODY).status_code == 200


def test_a_client_that_vanishes_within_its_body_is_no_fault(served, caplog):
    with socket.create_connection(served.url.removeprefix("http://").split(":")) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.2)
    time.sleep(0.2)
    assert served.post(**BODY).status_code == 200
    assert not [record for record in caplog.records if record.exc_info]
