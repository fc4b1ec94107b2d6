"""What any OpenAI client may expect, asked by the official one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from outpace.grammar import JsonSchema

openai = pytest.importorskip("openai", reason="the OpenAI client is not installed")

pytestmark = pytest.mark.embedded

MODEL = "smollm2-135m"
QUESTION = [{"role": "user", "content": "Count from one to ten in words, then again."}]
STORY = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Tell me a story of a fox."}]


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client, messages=QUESTION, **options):
    options = {"max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def streamed(client, **options):
    """Returns (chunks, the joined text of each choice)."""
    chunks = list(chat(client, stream=True, **options))
    texts = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    return chunks, texts


def refused(client, status=400, **options):
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, **options)
    assert caught.value.status_code == status
    return caught.value.body


# answers


def test_the_answer_is_that_of_the_library(client, solo):
    expected = solo.generate(QUESTION, max_tokens=24)
    answer = chat(client)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == expected.finish
    assert answer.object == "chat.completion"
    assert answer.model == MODEL


def test_the_usage_counts_emitted_tokens(client, solo):
    expected = solo.generate(QUESTION, max_tokens=24)
    usage = chat(client).usage
    assert usage.completion_tokens == len(expected.tokens)
    assert usage.prompt_tokens == expected.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_the_speculation_object_says_what_was_drafted(client):
    answer = chat(client, max_tokens=60)
    said = answer.model_extra["speculation"]
    details = answer.usage.completion_tokens_details
    assert details.accepted_prediction_tokens + details.rejected_prediction_tokens == said["drafted"]
    assert said["rule"] == "coupled"
    assert said["tokens_per_step"] == pytest.approx(answer.usage.completion_tokens / said["steps"])


@pytest.mark.parametrize("length", [0, 1, 4, 8])
@pytest.mark.parametrize("temperature", [0, 1])
def test_the_text_does_not_depend_on_the_draft_length(client, length, temperature):
    asked = {"temperature": temperature, "seed": 7, "max_tokens": 40}
    plain = chat(client, **asked, extra_body={"speculation": {"off": True}})
    other = chat(client, **asked, extra_body={"speculation": {"drafter": "ngram", "draft_length": length}})
    assert other.choices[0].message.content == plain.choices[0].message.content
    assert plain.model_extra["speculation"]["drafter"] == "none"


def test_another_rule_is_in_force_when_asked_for(client):
    answer = chat(client, temperature=1, seed=1, extra_body={"speculation": {"rule": "rejection"}})
    assert answer.model_extra["speculation"]["rule"] == "rejection"
    assert answer.model_extra["speculation"]["lossless"]


def test_a_seed_gives_the_text_again(client):
    first, second = (chat(client, temperature=1, seed=11).choices[0].message.content for _ in range(2))
    assert first == second


def test_without_a_seed_texts_differ(client):
    texts = {chat(client, STORY, temperature=1.5, max_tokens=16).choices[0].message.content for _ in range(3)}
    assert len(texts) > 1


def test_temperature_is_one_unless_it_is_given(client, solo):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=16, seed=3)
    expected = solo.generate(QUESTION, max_tokens=16, temperature=1.0, seed=3)
    assert answer.choices[0].message.content == expected.text


def test_each_choice_has_its_own_noise(client, solo):
    answer = chat(client, STORY, temperature=1, seed=5, n=3)
    expected = solo.generate(STORY, max_tokens=24, temperature=1.0, seed=5, n=3)
    assert [choice.message.content for choice in answer.choices] == [one.text for one in expected.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens == sum(len(one.tokens) for one in expected.choices)
    assert answer.usage.prompt_tokens == expected.prompt_tokens


def test_a_stop_string_ends_the_text_and_is_left_out(client):
    whole = chat(client, max_tokens=40).choices[0].message.content
    middle = whole[len(whole) // 2 : len(whole) // 2 + 4]
    answer = chat(client, max_tokens=40, stop=middle)
    assert answer.choices[0].message.content == whole[: whole.index(middle)]
    assert answer.choices[0].finish_reason == "stop"


def test_the_first_of_several_stop_strings_wins(client):
    whole = chat(client, max_tokens=40).choices[0].message.content
    early, late = whole[5:8], whole[20:24]
    answer = chat(client, max_tokens=40, stop=[late, early])
    assert answer.choices[0].message.content == whole[: whole.index(early)]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_max_tokens_is_exact(client, count):
    answer = chat(client, max_tokens=count)
    assert answer.usage.completion_tokens == count
    assert answer.choices[0].finish_reason == "length"


def test_max_completion_tokens_is_the_newer_name(client):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_completion_tokens=3, temperature=0)
    assert answer.usage.completion_tokens == 3


def test_the_end_of_the_text_is_a_stop(client, solo):
    short = [{"role": "user", "content": "Answer with the word yes."}]
    expected = solo.generate(short, max_tokens=200)
    answer = chat(client, short, max_tokens=200)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].finish_reason == expected.finish


def test_parameters_beyond_openai_act(client, solo):
    more = {"top_k": 5, "min_p": 0.05, "repetition_penalty": 1.2, "min_tokens": 8}
    answer = chat(client, temperature=0.8, seed=2, extra_body=more)
    expected = solo.generate(QUESTION, max_tokens=24, temperature=0.8, seed=2, **more)
    assert answer.choices[0].message.content == expected.text


def test_penalties_and_biases_act(client, solo):
    more = {"presence_penalty": 0.7, "frequency_penalty": 0.4, "top_p": 0.9}
    answer = chat(client, temperature=1, seed=2, logit_bias={"28": -20}, **more)
    expected = solo.generate(QUESTION, max_tokens=24, temperature=1.0, seed=2, logit_bias={28: -20.0}, **more)
    assert answer.choices[0].message.content == expected.text


def test_content_in_parts_is_one_text(client):
    parts = [{"type": "text", "text": "Count from one to ten in words, "}, {"type": "text", "text": "then again."}]
    answer = chat(client, [{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == chat(client).choices[0].message.content


# structured output

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_json_schema_is_kept(client, solo, temperature):
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    answer = chat(client, STORY, max_tokens=80, temperature=temperature, seed=3, response_format=schema)
    found = json.loads(answer.choices[0].message.content)
    assert set(found) == {"name", "age"}
    expected = solo.generate(STORY, max_tokens=80, temperature=temperature, seed=3, grammar=JsonSchema(PERSON))
    assert answer.choices[0].message.content == expected.text


def test_json_mode_and_a_regex(client):
    asked = {"response_format": {"type": "regex", "pattern": "(yes|no)"}}
    assert chat(client, extra_body=asked).choices[0].message.content in ("yes", "no")
    assert chat(client, response_format={"type": "text"}).choices[0].message.content
    text = chat(client, STORY, max_tokens=40, response_format={"type": "json_object"}).choices[0].message.content
    assert text.startswith("{")


# log-probabilities


def test_logprobs_are_the_targets_for_every_token(client, solo):
    answer = chat(client, logprobs=True, top_logprobs=3)
    expected = solo.generate(QUESTION, max_tokens=24, logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert [one.logprob for one in content] == [one.logprob for one in expected.logprobs]
    assert all(len(one.top_logprobs) == 3 for one in content)
    assert all(one.logprob < 0 for one in content)


def test_bytes_of_the_tokens_make_the_text(client):
    answer = chat(client, logprobs=True, max_tokens=12)
    joined = b"".join(bytes(one.bytes) for one in answer.choices[0].logprobs.content)
    assert joined.decode() == answer.choices[0].message.content


def test_streamed_logprobs_are_the_same(client):
    whole = chat(client, logprobs=True, top_logprobs=1).choices[0].logprobs.content
    chunks, _ = streamed(client, logprobs=True, top_logprobs=1)
    found = [one for chunk in chunks for c in chunk.choices if c.logprobs for one in c.logprobs.content]
    assert [one.logprob for one in found] == [one.logprob for one in whole]


# streams


@pytest.mark.parametrize("length", [1, 4, 8])
def test_deltas_joined_are_the_text(client, length):
    asked = {"max_tokens": 60, "extra_body": {"speculation": {"drafter": "ngram", "draft_length": length}}}
    whole = chat(client, **asked).choices[0]
    chunks, texts = streamed(client, **asked)
    assert texts == {0: whole.message.content}
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == [whole.finish_reason]
    assert len({chunk.id for chunk in chunks}) == 1


def test_emoji_are_never_cut_in_two(client):
    emoji = [{"role": "user", "content": "Repeat: 🦊🌊🎈 你好 🦊🌊🎈"}]
    _, texts = streamed(client, messages=emoji, max_tokens=60)
    whole = chat(client, emoji, max_tokens=60).choices[0].message.content
    assert texts[0] == whole


def test_several_choices_stream_side_by_side(client):
    asked = {"messages": STORY, "temperature": 1, "seed": 5, "n": 3}
    _, texts = streamed(client, **asked)
    whole = chat(client, **asked)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}


def test_usage_comes_last_when_it_is_asked_for(client):
    chunks, _ = streamed(client, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == chat(client).usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_trace_says_how_each_token_came(client):
    chunks, texts = streamed(client, max_tokens=60, extra_body={"speculation": {"trace": True}})
    told = [token for chunk in chunks for token in (chunk.model_extra.get("speculation") or {}).get("tokens", [])]
    assert "".join(token["text"] for token in told) == texts[0]
    assert {token["origin"] for token in told} <= {"accepted", "correction", "bonus", "plain"}


def test_a_stream_ends_with_done(served):
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 3, "stream": True}
    answer = served.post(**body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")


# text completions


def test_a_text_goes_on(client, solo):
    answer = client.completions.create(model=MODEL, prompt="The quick brown", max_tokens=12, temperature=0)
    expected = solo.generate("The quick brown", raw=True, max_tokens=12)
    assert answer.choices[0].text == expected.text
    assert answer.object == "text_completion"


def test_sixteen_tokens_unless_told(client):
    answer = client.completions.create(model=MODEL, prompt="One two three", temperature=0)
    assert answer.usage.completion_tokens == 16


def test_several_prompts_are_several_choices(client):
    prompts = ["The sea is", "Two plus two"]
    answer = client.completions.create(model=MODEL, prompt=prompts, max_tokens=6, temperature=0)
    alone = [client.completions.create(model=MODEL, prompt=p, max_tokens=6, temperature=0) for p in prompts]
    assert [choice.text for choice in answer.choices] == [one.choices[0].text for one in alone]
    assert answer.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)


def test_token_ids_are_a_prompt(client, solo):
    ids = solo.text.encode("The quick brown", special=True)
    by_ids = client.completions.create(model=MODEL, prompt=ids, max_tokens=6, temperature=0)
    by_text = client.completions.create(model=MODEL, prompt="The quick brown", max_tokens=6, temperature=0)
    assert by_ids.choices[0].text == by_text.choices[0].text


def test_legacy_logprobs_have_offsets(client):
    answer = client.completions.create(model=MODEL, prompt="The sea", max_tokens=5, temperature=0, logprobs=2)
    found = answer.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == 5
    assert found.text_offset[0] == 0
    assert "".join(found.tokens) == answer.choices[0].text


def test_streamed_text_completions_join(client):
    chunks = list(
        client.completions.create(model=MODEL, prompt="The sea is", max_tokens=20, temperature=0, stream=True)
    )
    whole = client.completions.create(model=MODEL, prompt="The sea is", max_tokens=20, temperature=0)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text


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


def test_an_unknown_path_is_404_in_the_same_shape(served):
    answer = httpx.get(served.url + "/v1/nothing")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_embeddings_are_refused_clearly(client):
    with pytest.raises(openai.BadRequestError, match="makes no embeddings"):
        client.embeddings.create(model=MODEL, input="x")


# company


def test_answers_do_not_depend_on_the_company(client):
    questions = [[{"role": "user", "content": f"Say {i} things about the number {i}."}] for i in range(8)]

    def ask(i):
        return chat(client, questions[i], max_tokens=32, temperature=i % 2, seed=i).choices[0].message.content

    alone = [ask(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    assert together == alone


def test_json_bodies_are_plain_ascii_or_utf8(served):
    answer = served.post(model=MODEL, messages=QUESTION, max_tokens=2)
    json.loads(answer.content.decode())
