"""Log-probabilities are the target's own, of every emitted token, whatever was drafted and however it was sampled."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fakes import TableTarget
from outpace.api import Model
from outpace.errors import UsageError
from outpace.logprobs import token_logprob
from outpace.native.gguf import open_gguf
from outpace.text import Text

PROMPT = "ab abc ab ab abc"
WARPED = {
    "temperature": 0.7, "top_k": 30, "top_p": 0.9, "repetition_penalty": 1.3, "presence_penalty": 0.5,
    "logit_bias": {70: 2.0}, "banned": [80], "seed": 3, "max_tokens": 25, "raw": True,
}  # fmt: skip
WAYS = [{"drafter": "none"}, {"drafter": "ngram", "draft_length": 4}, {"drafter": "model", "draft_length": 3}]


@pytest.fixture(scope="module")
def model(tiny_llama):
    text = Text.from_weights(open_gguf(tiny_llama))
    return Model(TableTarget(320, order=2, spread=3.0), text, TableTarget(320, order=2, spread=2.5))


@pytest.mark.parametrize("spread", [0.01, 1, 5, 100])
def test_it_is_the_logarithm_of_the_softmax(spread):
    row = (np.random.default_rng(1).normal(size=50_000) * spread).astype(np.float32)
    exact = row.astype(np.float64) - row.max()
    exact -= np.log(np.exp(exact).sum())
    found = token_logprob(row, 7, len(row))
    assert found.logprob == pytest.approx(exact[7], abs=1e-6)
    assert np.allclose([value for _, value in found.top], np.sort(exact)[::-1], rtol=0, atol=1e-6)
    assert sum(math.exp(value) for _, value in found.top) == pytest.approx(1, abs=1e-6)


def test_infinite_logits_share_everything():
    row = np.float32([1e30, math.inf, -math.inf, math.inf])
    found = token_logprob(row, 3, 4)
    assert found.top == ((1, pytest.approx(-math.log(2))), (3, pytest.approx(-math.log(2))))
    assert found.logprob == found.top[1][1]


def test_alternatives_come_best_first_with_ties_to_the_lowest_id():
    row = np.float32([1, 3, -math.inf, 3, 2, 3])
    assert [id for id, _ in token_logprob(row, 0, 2).top] == [1, 3]
    assert [id for id, _ in token_logprob(row, 0, 6).top] == [1, 3, 5, 4, 0]
    assert token_logprob(row, 0, 0).top == ()


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [0, 1, 5, 320])
def test_every_emitted_token_has_the_targets_unwarped_log_probability(model, way, rule, count):
    result = model.generate(PROMPT, logprobs=count, rule=rule, **WARPED, **way)
    path = model.text.encode(PROMPT, special=True)
    assert len(result.logprobs) == len(result.tokens)
    for token, found in zip(result.tokens, result.logprobs, strict=True):
        row = model.target.logits(path).astype(np.float64)
        expected = row - np.log(np.exp(row).sum())
        assert found.token == token
        assert found.logprob == pytest.approx(expected[token], abs=1e-6)
        assert [id for id, _ in found.top] == np.argsort(-expected, kind="stable")[:count].tolist()
        assert [value for _, value in found.top] == pytest.approx(expected[[id for id, _ in found.top]], abs=1e-6)
        if count == 320:
            assert sum(math.exp(value) for _, value in found.top) == pytest.approx(1, abs=1e-6)
        path.append(token)


def test_drafts_do_not_change_the_log_probabilities_of_the_native_engine(tiny_llama):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    import outpace

    with outpace.load(tiny_llama, draft=tiny_llama, threads=1) as model:
        assert len({model.generate(PROMPT, logprobs=3, **WARPED, **way).logprobs for way in WAYS}) == 1


def test_chunks_carry_those_of_their_tokens_and_the_record_has_them_all(model):
    generation = model.stream(PROMPT, logprobs=2, **WARPED, drafter="model", draft_length=3)
    chunks = list(generation)
    result = generation.result()
    assert all(len(chunk.logprobs) == len(chunk.step.tokens) for chunk in chunks)
    assert tuple(one for chunk in chunks for one in chunk.logprobs) == result.logprobs
    record = json.loads(json.dumps(result.record()))["logprobs"]
    assert [one["token"] for one in record] == list(result.tokens)
    assert model.generate(PROMPT, **WARPED).record()["logprobs"] is None


def test_an_observer_still_sees_every_round(model):
    seen = []
    result = model.generate(PROMPT, logprobs=0, observer=lambda o: seen.extend(o.step.tokens), **WARPED)
    assert seen == list(result.tokens)


@pytest.mark.parametrize("count", [-1, 321])
def test_a_number_of_alternatives_that_cannot_be_is_refused(model, count):
    with pytest.raises(UsageError, match=rf"logprobs must be in \[0, 320\] alternatives, got {count}"):
        model.generate(PROMPT, logprobs=count)
