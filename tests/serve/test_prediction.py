"""OpenAI's predicted outputs: a caller's expectation is drafted from, and changes no text."""

from __future__ import annotations

import pytest

pytest.importorskip("openai", reason="the OpenAI client is not installed")
from openai_asked import STORY, chat, refused, streamed

pytestmark = pytest.mark.embedded


def predicted(content, **speculation):
    more = {"speculation": speculation} if speculation else {}
    return {"prediction": {"type": "content", "content": content}, "extra_body": more}


def counted(answer):
    """Of the predicted tokens, those that came and those that did not."""
    details = answer.usage.completion_tokens_details
    return details.accepted_prediction_tokens, details.rejected_prediction_tokens


@pytest.fixture(scope="module")
def answer(solo):
    return solo.generate(STORY, max_tokens=60, drafter="none").text


def test_a_right_prediction_is_accepted_and_takes_few_passes(client, answer):
    found = chat(client, STORY, max_tokens=60, **predicted(answer, drafter="suffix", draft_length=8))
    assert found.choices[0].message.content == answer
    assert counted(found) == (60, 0)
    assert found.model_extra["speculation"]["steps"] < 15


def test_the_usage_counts_the_predicted_tokens_that_came_and_those_that_did_not(client, solo, answer):
    tokens = solo.text.encode(answer, special=False)
    half = solo.text.decode(tokens[:30])
    assert counted(chat(client, STORY, max_tokens=60, **predicted(half))) == (30, 0)
    short = counted(chat(client, STORY, max_tokens=20, **predicted(answer)))
    assert short == (20, len(tokens) - 20)


@pytest.mark.parametrize("drafter", ["suffix", "ngram", "mixture"])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_the_usage_does_not_depend_on_how_it_was_drafted(client, answer, drafter, length):
    other = answer[: len(answer) // 2] + " Something else altogether." + answer[len(answer) // 2 :]
    found = chat(client, STORY, max_tokens=60, **predicted(other, drafter=drafter, draft_length=length))
    assert counted(found) == counted(chat(client, STORY, max_tokens=60, **predicted(other)))
    assert min(counted(found)) > 0


def test_without_a_prediction_nothing_of_one_is_counted(client):
    found = chat(client, STORY, max_tokens=60)
    assert found.model_extra["speculation"]["drafted"] > 0
    assert counted(found) == (0, 0)


def test_each_choice_counts_the_prediction(client, answer):
    found = chat(client, STORY, max_tokens=60, n=2, temperature=0.5, seed=1, **predicted(answer))
    assert sum(counted(found)) == 2 * sum(counted(chat(client, STORY, max_tokens=60, **predicted(answer))))


def test_without_further_words_the_prediction_is_why_it_drafts(client, answer):
    said = chat(client, STORY, max_tokens=60, **predicted(answer)).model_extra["speculation"]
    assert said["drafter"] == "suffix"
    assert "copies from the prediction" in said["reason"]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("wrong", ["", "One two seven.\n" * 30, "🦊 <|im_end|>", "x" * 20_000])
def test_a_wrong_prediction_changes_no_text(client, wrong, temperature):
    asked = {"max_tokens": 40, "temperature": temperature, "seed": 4}
    assert chat(client, STORY, **asked, **predicted(wrong)).choices == chat(client, STORY, **asked).choices


def test_a_prediction_in_parts_is_one_text(client, answer):
    parts = [{"type": "text", "text": answer[:40]}, {"type": "text", "text": answer[40:]}]
    asked = {"drafter": "ngram", "draft_length": 4}
    whole, joined = (chat(client, STORY, max_tokens=60, **predicted(content, **asked)) for content in (answer, parts))
    assert (
        whole.usage == joined.usage or whole.usage.completion_tokens_details == joined.usage.completion_tokens_details
    )


def test_predictions_stream_and_serve_every_choice(client, answer):
    asked = {"max_tokens": 30, "temperature": 0.7, "seed": 2, "n": 2}
    _, texts = streamed(client, messages=STORY, **asked, **predicted(answer))
    assert texts == {choice.index: choice.message.content for choice in chat(client, STORY, **asked).choices}


@pytest.mark.parametrize("speculation", [{"off": True}, {"drafter": "none"}])
def test_a_prediction_that_nothing_copies_is_refused(client, speculation):
    assert "copies from no prediction" in refused(client, **predicted("x", **speculation))["message"]


@pytest.mark.parametrize("prediction", [{"type": "content"}, {"type": "image", "content": "x"}, {"content": 3}, "x"])
def test_a_malformed_prediction_is_refused(client, prediction):
    assert refused(client, prediction=prediction)["param"] == "prediction"
