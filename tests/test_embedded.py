"""The embedded model from end to end: real text, the same whatever drafts."""

from __future__ import annotations

import pytest

import outpace

pytestmark = pytest.mark.embedded

PROMPT = "Write a long story about a lighthouse keeper and her dog."


@pytest.fixture(scope="module")
def model(embedded_model):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    with outpace.load(embedded_model, draft=embedded_model, context=1024) as model:
        yield model


@pytest.fixture(scope="module")
def plain(model):
    return {
        temperature: model.generate(PROMPT, max_tokens=48, temperature=temperature, seed=7, drafter="none")
        for temperature in (0.0, 1.0)
    }


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 3, 8, None])
def test_ngram_drafts_keep_the_text(model, plain, temperature, length):
    result = model.generate(
        PROMPT, max_tokens=48, temperature=temperature, seed=7, drafter="ngram", draft_length=length
    )
    assert result.tokens == plain[temperature].tokens
    assert result.text == plain[temperature].text
    assert result.fault is None


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_model_drafting_for_itself_is_always_right(model, rule, temperature):
    result = model.generate(
        PROMPT, max_tokens=36, temperature=temperature, seed=7, drafter="model", draft_length=5, rule=rule
    )
    assert len(result.steps) == 6
    assert all(step.accepted == step.drafted == 5 for step in result.steps[:-1])


def test_a_second_turn_reuses_the_first(model, plain):
    chat = model.chat()
    chat.send(PROMPT, max_tokens=16)
    again = chat.send("Go on.", max_tokens=16)
    fresh = outpace.Model(model.target, model.text).generate(
        [*chat.messages[:2], {"role": "user", "content": "Go on."}], max_tokens=16
    )
    assert again.tokens == fresh.tokens


def test_generations_do_not_leak_into_each_other(model, plain):
    model.generate("Tell me about rivers.", max_tokens=20, temperature=1.0, seed=1)
    assert model.generate(PROMPT, max_tokens=48, seed=7).tokens == plain[0.0].tokens
