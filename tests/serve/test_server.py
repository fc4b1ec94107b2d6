"""The server under bad luck: clients that vanish, keys, full queues, a broken drafter; and its command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
import httpx
from thread_server import OnThread

from outpace.registry import DRAFTERS
from outpace.serve.scheduler import Limits
from outpace.serve.settings import Settings

pytestmark = pytest.mark.embedded

BODY = {
    "model": "smollm2-135m",
    "messages": [{"role": "user", "content": "Tell a long story of the sea."}],
    "max_tokens": 900,
    "temperature": 0,
    "ignore_eos": True,
}


def settle(service, seconds=20):
    """Waits until nothing is open, and says whether it came to that."""
    until = time.monotonic() + seconds
    while service.scheduler.open and time.monotonic() < until:
        time.sleep(0.02)
    return not service.scheduler.open


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_frees_its_slot(served, stream):
    with socket.create_connection(served.url.removeprefix("http://").split(":")) as connection:
        body = json.dumps({**BODY, "stream": stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        until = time.monotonic() + 20
        while not served.service.scheduler._running and time.monotonic() < until:
            time.sleep(0.005)
    assert settle(served.service, 3), "the request still ran three seconds after its client had gone"


def test_prompts_that_come_again_are_kept_while_there_is_room(embedded):
    def cached(running):
        found = []
        for i in range(4):
            messages = [{"role": "user", "content": f"{i} " + "word " * 500}]
            usage = running.post(model="smollm2-135m", messages=messages, max_tokens=2).json()["usage"]
            found.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
        return found

    embedded.forget_prefixes()
    for tokens, least, most in ((8192, 0.99, 1.0), (1024, 0.0, 0.1)):
        settings = Settings(names=("smollm2-135m",), limits=Limits(slots=1, tokens=tokens))
        with OnThread(embedded, settings) as running:
            cached(running)
            assert all(least <= share <= most for share in cached(running))


def test_a_full_queue_is_429_with_a_time_to_retry(embedded):
    settings = Settings(names=("smollm2-135m",), limits=Limits(slots=1, queue=0))
    with OnThread(embedded, settings) as running, httpx.Client(timeout=60) as client:
        with client.stream("POST", running.url + "/v1/chat/completions", json={**BODY, "stream": True}) as first:
            lines = first.iter_lines()
            next(lines)
            refused = running.post(**BODY)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        assert settle(running.service)
        assert running.post(**{**BODY, "max_tokens": 2}).status_code == 200


def test_a_key_is_asked_for(embedded):
    with OnThread(embedded, Settings(names=("smollm2-135m",), api_key="secret")) as running:
        assert running.post(**BODY).status_code == 401
        assert httpx.get(running.url + "/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(running.url + "/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert httpx.get(running.url + "/health").status_code == 200


def test_a_request_beyond_its_time_is_told(embedded):
    with OnThread(embedded, Settings(names=("smollm2-135m",), limits=Limits(seconds=0.2))) as running:
        answer = running.post(**BODY)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        streamed = running.post(**{**BODY, "stream": True})
        assert '"code":"timeout"' in streamed.text
        assert settle(running.service)


def test_a_body_without_a_length_is_counted(served):
    def parts():
        for _ in range(10):
            yield b" " * (1 << 20)

    answer = httpx.post(served.url + "/v1/chat/completions", content=parts())
    assert answer.status_code == 413


def test_the_command_serves_and_drains_on_sigterm(embedded_model):
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--port", "0"]
    command += ["--model", str(embedded_model), "--name", "smollm2-135m", "--context", "1024"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            line = process.stderr.readline()
            url = line.split()[2].removesuffix("/v1")
            with httpx.stream(
                "POST", f"{url}/v1/chat/completions", json={**BODY, "stream": True, "max_tokens": 150}, timeout=120
            ) as answer:
                lines = answer.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                assert list(lines)[-2:] == ["data: [DONE]", ""]
            assert process.wait(60) in (0, -signal.SIGTERM)
        finally:
            process.kill()


def test_what_outlasts_the_grace_hears_why(embedded):
    settings = Settings(names=("smollm2-135m",), grace_seconds=0, limits=Limits(slots=1, queue=8))
    with OnThread(embedded, settings) as running, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(running.post, **BODY, stream=stream) for stream in (True, False, True)]
        until = time.monotonic() + 20
        while running.service.scheduler.open < 3 and time.monotonic() < until:
            time.sleep(0.005)
        running.server.should_exit = True
        answers = [one.result(20) for one in asked]
    for answer in answers:
        begun = answer.status_code == 200
        assert begun or (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        last = answer.text.split("data: ")[-1]
        assert json.loads(last)["error"]["code"] == "shutting_down"


def test_the_page_offers_what_can_draft_and_nothing_else(served):
    offered = httpx.get(served.url + "/web/server.json").json()["drafters"]
    assert {"suffix", "ngram"} <= set(offered)
    for name in DRAFTERS.names():
        if name != "none":  # which the page calls plain decoding
            asked = {**BODY, "max_tokens": 6, "speculation": {"drafter": name, "draft_length": 2}}
            answer = served.post(**asked)
            assert (answer.status_code == 200) == (name in offered), answer.text
            assert answer.status_code == 400 or answer.json()["speculation"]["fault"] is None


def test_a_taken_port_is_one_line(embedded_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--port", str(port)]
        done = subprocess.run([*command, "--model", str(embedded_model)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == f"outpace: error: cannot listen on 127.0.0.1:{port}: Address already in use\n"
