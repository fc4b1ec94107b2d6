"""What the server says of itself, and how it refuses, asked by the official client."""

from __future__ import annotations

import inspect
import json
import socket

import httpx
import pytest

pytest.importorskip("openai", reason="the OpenAI client is not installed")
import openai
from openai_asked import MODEL, QUESTION, chat, refused

from outpace.serve.schema import REFUSED, ChatRequest, CompletionRequest

pytestmark = pytest.mark.embedded


# models and status


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


@pytest.mark.parametrize("path", ["/health", "/ready", "/openapi.json"])
def test_it_says_how_it_is(served, path):
    assert httpx.get(served.url + path).status_code == 200


def test_the_counters_have_vllms_names(served, client):
    chat(client, max_tokens=40)
    text = httpx.get(served.url + "/metrics").text
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert f"outpace:spec_decode_{name}_total" in text


# errors


def test_an_unknown_model_is_404(client):
    with pytest.raises(openai.NotFoundError, match="runs 'smollm2-135m', not 'gpt-9'"):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ({"temperature": -1}, None, "temperature"),
        ({"top_p": 0}, None, "top_p must be in"),
        ({"max_tokens": 0}, None, "max_tokens must be at least 1"),
        ({"n": 0}, None, "n must be in"),
        ({"n": 1000}, None, "n must be in"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages", "role"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "[-100, 100]"),
        ({"logit_bias": {"01": 1}}, "logit_bias", "token ids to numbers, got '01'"),
        ({"logit_bias": {"\N{ARABIC-INDIC DIGIT TWO}": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"1" * 5000: 1}}, "logit_bias", "token ids"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "not supported"),
        ({"extra_body": {"colour": "red"}}, "colour", "not a parameter"),
        ({"extra_body": {"speculation": {"drafter": "oracle"}}}, None, "unknown drafter 'oracle'; known: none"),
        ({"extra_body": {"speculation": {"rule": "hope"}}}, None, "unknown rule"),
        ({"extra_body": {"speculation": {"off": True, "draft_length": 3}}}, "speculation", "is off"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"response_format": {"type": "poem"}}, "response_format", "poem"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "needs 'json_schema'"),
        ({"response_format": {"type": "regex", "pattern": "("}}, None, "regex"),
    ],
)
def test_a_wrong_parameter_is_400_and_named(client, options, param, words):
    body = refused(client, **options)
    assert words in body["message"]
    assert body["type"] == "invalid_request_error"
    assert body["param"] == param


PARAMETERS = {
    name
    for kind in (openai.resources.chat.Completions, openai.resources.Completions)
    for name in inspect.signature(kind.create).parameters
    if name not in ("self", "timeout") and not name.startswith("extra_")
}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_each_parameter_of_the_client_is_honoured_or_refused_with_a_reason(name):
    fields = {*ChatRequest.model_fields, *CompletionRequest.model_fields}
    assert (name in fields) != (name in REFUSED)


@pytest.mark.parametrize("name", ["refusal", "tool_calls", "function_call", "audio", "annotations"])
def test_a_member_of_a_message_that_says_something_else_is_refused_by_name(client, name):
    said = [{"role": "assistant", "content": "x", name: [{"a": 1}]}, {"role": "user", "content": "x"}]
    body = refused(client, messages=said)
    assert body["message"].startswith(f"messages: {name} is not supported: ")
    assert (body["param"], body["code"]) == ("messages", "unsupported_parameter")


def test_a_name_of_a_parameter_that_is_not_unicode_is_400(served):
    answer = httpx.post(served.url + "/v1/chat/completions", content=b'{"model": "x", "\\ud800": 1}')
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body: Input should be a valid string")


def test_a_prompt_beyond_the_context_is_400_before_a_stream_begins(client):
    long = [{"role": "user", "content": "word " * 2000}]
    assert refused(client, messages=long, stream=True)["code"] == "context_length_exceeded"


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"x"', b"\xff\xfe", b"{" * 100_000, b'{"model": NaN}'])
def test_a_malformed_body_is_400(served, body):
    answer = httpx.post(served.url + "/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_huge_body_is_413(served):
    answer = httpx.post(served.url + "/v1/chat/completions", content=b" " * (9 << 20))
    assert answer.status_code == 413


@pytest.mark.parametrize("size", [b"Content-Length: 20971520", b"Transfer-Encoding: chunked"])
def test_a_client_that_writes_all_of_a_huge_body_first_hears_why_it_is_refused(served, size):
    with socket.create_connection(served.url.removeprefix("http://").split(":"), timeout=30) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + size + b"\r\n\r\n")
        for _ in range(20):
            part = b" " * (1 << 20)
            connection.sendall(part if b"Length" in size else b"%x\r\n%s\r\n" % (len(part), part))
        if b"Length" not in size:
            connection.sendall(b"0\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("head", [b"Content-Length: 99999999999999999999", b"Expect: 100-continue"])
def test_a_huge_body_that_need_not_come_is_refused_at_once(served, head):
    with socket.create_connection(served.url.removeprefix("http://").split(":"), timeout=30) as connection:
        length = b"" if b"Length" in head else b"Content-Length: 20971520\r\n"
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + length + head + b"\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "regex", "pattern": "\ud800"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["\udc00"]}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"\udc00": {}}}}},
    ],
)
def test_a_grammar_that_is_not_unicode_is_400(served, wanted):
    pytest.importorskip("llguidance", reason="the extra 'structured' is not installed")
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 4,
        "response_format": wanted,
    }
    answer = httpx.post(served.url + "/v1/chat/completions", content=json.dumps(body))
    assert answer.status_code == 400
    assert "is not Unicode: half of a surrogate pair" in answer.json()["error"]["message"]


def test_more_prompts_than_there_is_ever_room_for_are_400(served):
    answer = served.post("/v1/completions", model=MODEL, prompt=["a"] * 73, max_tokens=1)
    assert answer.status_code == 400
    assert "at most 72, what this server runs and queues, got 73" in answer.json()["error"]["message"]
    answer = served.post("/v1/completions", model=MODEL, prompt=["a"] * 25, n=3, max_tokens=1)
    assert answer.status_code == 400
    assert "got 75" in answer.json()["error"]["message"]


def test_a_fixed_draft_has_a_bound(served):
    messages = [{"role": "user", "content": "x"}]
    answer = served.post(model=MODEL, messages=messages, max_tokens=4, speculation={"draft_length": 10**9})
    assert answer.status_code == 400
    assert "draft_length must be in [0, 128]" in answer.json()["error"]["message"]


def test_an_unknown_path_is_404_in_the_same_shape(served):
    answer = httpx.get(served.url + "/v1/nothing")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_embeddings_are_refused_clearly(client):
    with pytest.raises(openai.BadRequestError, match="makes no embeddings"):
        client.embeddings.create(model=MODEL, input="x")
