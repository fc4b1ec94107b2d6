"""What any OpenAI client may expect, asked by the official one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("openai", reason="the OpenAI client is not installed")
from openai_asked import MODEL, QUESTION, STORY, chat, streamed

from outpace.grammar import JsonSchema

pytestmark = pytest.mark.embedded


# answers


def test_the_answer_is_that_of_the_library(client, solo):
    expected = solo.generate(QUESTION, max_tokens=24)
    answer = chat(client)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == expected.finish
    assert answer.object == "chat.completion"
    assert answer.model == MODEL


def test_an_answer_comes_back_as_the_client_holds_it(client, solo):
    said = chat(client).choices[0].message
    turns = [*QUESTION, {"role": "assistant", "content": said.content}, {"role": "user", "content": "Again."}]
    expected = solo.generate(turns, max_tokens=24).text
    for held in (said, said.model_dump()):
        assert chat(client, [*QUESTION, held, turns[-1]]).choices[0].message.content == expected


def test_a_name_reaches_the_template(client, embedded, monkeypatch):
    seen = []
    rendered = embedded.text.render_chat
    monkeypatch.setattr(embedded.text, "render_chat", lambda messages: seen.extend(messages) or rendered(messages))
    chat(client, [{**QUESTION[0], "name": "Ada"}])
    assert [message.get("name") for message in seen] == ["Ada"]


def test_the_usage_counts_emitted_tokens(client, solo):
    expected = solo.generate(QUESTION, max_tokens=24)
    usage = chat(client).usage
    assert usage.completion_tokens == len(expected.tokens)
    assert usage.prompt_tokens == expected.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_the_speculation_object_says_what_was_drafted(client):
    answer = chat(client, max_tokens=60)
    said = answer.model_extra["speculation"]
    assert said["drafted"] > 0
    assert 0 <= said["acceptance_rate"] <= 1
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
