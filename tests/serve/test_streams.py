"""Streams of chat completions, and text completions, asked by the official client."""

from __future__ import annotations

import pytest

pytest.importorskip("openai", reason="the OpenAI client is not installed")
from openai_asked import MODEL, QUESTION, STORY, chat, streamed

pytestmark = pytest.mark.embedded


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


def test_a_trace_adds_up_to_the_acceptance_by_position_of_trees_too(client):
    asked = {"drafter": "suffix", "draft_length": 6, "trace": True}
    chunks, _ = streamed(
        client, max_tokens=60, stream_options={"include_usage": True}, extra_body={"speculation": asked}
    )
    *traced, last = [chunk.model_extra["speculation"] for chunk in chunks if chunk.model_extra.get("speculation")]
    assert any(len(round["draft"]) > round["depth"] > 0 for round in traced)
    for position, share in enumerate(last["accepted_by_position"]):
        reached = [round["accepted"] > position for round in traced if round["depth"] > position]
        assert share == pytest.approx(sum(reached) / len(reached))


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


@pytest.mark.parametrize("stop", [None, ["\n"], [" ab"]])
def test_legacy_logprobs_place_and_tell_apart_parts_of_characters(client, solo, stop):
    prompt = "Repeat: 🦊🌊🎈 你好 🦊🌊🎈\n🦊🌊🎈 你好"
    asked = {"model": MODEL, "prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 5, "stop": stop}
    answer = client.completions.create(**asked)
    expected = solo.generate(prompt, raw=True, max_tokens=24, logprobs=5, stop=stop or ())
    found = answer.choices[0].logprobs
    assert [list(top.values()) for top in found.top_logprobs] == [
        [logprob for _, logprob in one.top] for one in expected.logprobs
    ]
    whole = solo.text.decode(expected.tokens)
    assert found.text_offset == [
        len(solo.text.detokeniser().feed(expected.tokens[:i])) for i in range(len(expected.tokens))
    ]
    for token, place in zip(found.tokens, found.text_offset, strict=True):
        assert token.startswith("bytes:") or whole.startswith(token, place)
    assert any(token.startswith("bytes:") for token in found.tokens)
    chunks = [chunk.choices[0].logprobs for chunk in client.completions.create(**asked, stream=True)]
    assert [place for one in chunks if one for place in one.text_offset] == found.text_offset
    assert [token for one in chunks if one for token in one.tokens] == found.tokens


def test_streamed_text_completions_join(client):
    chunks = list(
        client.completions.create(model=MODEL, prompt="The sea is", max_tokens=20, temperature=0, stream=True)
    )
    whole = client.completions.create(model=MODEL, prompt="The sea is", max_tokens=20, temperature=0)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
