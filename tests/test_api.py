"""The Python face: same text whatever drafts, one cut for every kind of end, figures that add up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from refusals import refused

import outpace
from fakes import TableTarget
from outpace.api import Model
from outpace.errors import ContextOverflow, ModelNotFound, UsageError, VocabularyMismatch
from outpace.native.gguf import open_gguf
from outpace.result import accepted_by_position
from outpace.text import Text

PROMPT = "ab abc ab ab abc"
WAYS = [
    {"drafter": "none"},
    {"drafter": "auto"},
    *({"drafter": "ngram", "draft_length": n} for n in (1, 3, 8)),
    *({"drafter": "model", "draft_length": n} for n in (1, 4)),
    {"drafter": "model"},
]


@pytest.fixture(scope="module")
def fake(tiny_llama):
    text = Text.from_weights(open_gguf(tiny_llama))
    return Model(TableTarget(320, order=2, spread=4.0), text, TableTarget(320, order=1, seed=3, spread=4.0))


@pytest.fixture(params=["fake", "native"])
def model(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter_gives_the_plain_text(model, temperature):
    texts = {
        model.generate(PROMPT, raw=True, max_tokens=40, temperature=temperature, seed=5, **way).tokens for way in WAYS
    }
    assert len(texts) == 1


def test_greedy_text_is_the_same_under_rejection(model):
    plain = model.generate(PROMPT, raw=True, max_tokens=40, drafter="none")
    for way in WAYS:
        for rule in ("rejection", "block", "traversal"):
            assert model.generate(PROMPT, raw=True, max_tokens=40, rule=rule, **way).tokens == plain.tokens


@pytest.mark.parametrize("count", range(1, 10))
def test_max_tokens_is_exact(model, count):
    whole = model.generate(PROMPT, raw=True, max_tokens=20, temperature=1, seed=2, drafter="none")
    part = model.generate(PROMPT, raw=True, max_tokens=count, temperature=1, seed=2, drafter="model", draft_length=6)
    assert part.tokens == whole.tokens[:count]
    assert part.finish == ("length" if count <= len(whole.tokens) and len(whole.tokens) > count else part.finish)


def test_streamed_pieces_joined_are_the_text(model):
    for way in WAYS:
        generation = model.stream(PROMPT, raw=True, max_tokens=40, temperature=1, seed=3, **way)
        chunks = list(generation)
        result = generation.result()
        assert "".join(chunk.text for chunk in chunks) == result.text
        assert [token for chunk in chunks for token in chunk.step.tokens] == list(result.tokens)
        assert all(len(c.pieces) == len(c.origins) == len(c.step.tokens) for c in chunks)
        assert tuple(chunk.step for chunk in chunks) == result.steps


def test_a_stop_string_ends_the_text_before_it_wherever_blocks_end(model):
    whole = model.generate(PROMPT, raw=True, max_tokens=40, temperature=1, seed=4, drafter="none").text
    for start in range(0, len(whole) - 3, 3):
        stop = whole[start : start + 3]
        first = whole.find(stop)
        for way in WAYS:
            result = model.generate(PROMPT, raw=True, max_tokens=40, temperature=1, seed=4, stop=[stop], **way)
            assert result.text == whole[:first]
            assert result.finish == "stop"


def test_eos_ends_the_text_and_is_no_part_of_it(tiny_llama):
    text = Text.from_weights(open_gguf(tiny_llama))
    eos = min(text.eos_ids)

    def logits(path):
        row = [0.0] * 320
        row[eos if len(set(path)) > 2 else 70] = 9.0
        return row

    model = Model(TableTarget(320, order=3, logits=logits), text)
    result = model.generate("xyz", raw=True)
    assert result.tokens == (eos,)
    assert result.text == ""
    assert result.finish == "stop"


def test_unseeded_sampling_draws_a_seed_and_records_it(model):
    first = model.generate(PROMPT, raw=True, max_tokens=30, temperature=1)
    second = model.generate(PROMPT, raw=True, max_tokens=30, temperature=1)
    assert first.seed != second.seed
    again = model.generate(PROMPT, raw=True, max_tokens=30, temperature=1, seed=first.seed, drafter="none")
    assert again.tokens == first.tokens


@pytest.mark.parametrize(
    ("options", "reproducible"),
    [
        ({}, True),
        ({"temperature": 1.0}, True),
        ({"temperature": 1.0, "rule": "rejection"}, False),
        ({"temperature": 1.0, "rule": "rejection", "draft_length": 3}, True),
        ({"temperature": 1.0, "rule": "rejection", "drafter": "none"}, True),
        ({"temperature": 0.0, "rule": "rejection"}, True),
    ],
)
def test_a_result_says_whether_it_is_reproducible(fake, options, reproducible):
    result = fake.generate(PROMPT, raw=True, max_tokens=20, seed=1, **options)
    assert result.reproducible == reproducible
    if reproducible:
        assert fake.generate(PROMPT, raw=True, max_tokens=20, seed=1, **options).tokens == result.tokens


def test_all_mistakes_are_named_in_one_message(fake):
    with pytest.raises(UsageError) as caught:
        fake.generate(PROMPT, max_tokens=0, temperature=-1, drafter="magic", rule="luck")
    message = str(caught.value)
    for part in ("max_tokens must be at least 1, got 0", "temperature", "unknown drafter 'magic'", "unknown rule"):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 1.3}, r"top_p must be in \(0, 1\], got 1.3"),
        ({"draft_length": -1}, r"draft_length must be in \[0, 128\]"),
        ({"max_tokens": -3}, "max_tokens must be at least 1, got -3"),
        ({"stop": [""]}, "stop strings must be"),
        ({"raw": True, "system": "be brief"}, "raw"),
        ({"prompt": []}, "a prompt must be a text or at least one message"),
        ({"prompt": None}, "a prompt must be a text or a list of messages, got NoneType"),
        ({"prompt": {"role": "user", "content": "x"}}, "a prompt must be a text or a list of messages, got dict"),
        ({"prompt": b"hi"}, "a prompt must be a text or a list of messages, got bytes"),
        ({"prompt": ["hi"]}, "message 0 must have a role and a content, got 'hi'"),
    ],
)
def test_a_mistake_is_one_clear_sentence(fake, options, message):
    with pytest.raises(UsageError, match=message):
        fake.generate(**({"prompt": PROMPT} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": "3"}, "max_tokens must be a whole number, got '3'"),
        ({"max_tokens": True}, "max_tokens must be a whole number, got True"),
        ({"n": None}, "n must be a whole number, got None"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"top_k": 5.5}, "top_k must be a whole number, got 5.5"),
        ({"draft_length": 2.5}, "draft_length must be a whole number, got 2.5"),
        ({"logprobs": True}, "logprobs must be a whole number, got True"),
        ({"temperature": "1"}, "temperature must be a number, got '1'"),
        ({"presence_penalty": None}, "presence_penalty must be a number, got None"),
        ({"logit_bias": {5: "2"}}, "logit_bias of token 5 must be a number, got '2'"),
        ({"logit_bias": 5}, "logit_bias must map tokens to numbers, got 5"),
        ({"logit_bias": [(1, 2)]}, "logit_bias must map tokens to numbers, got [(1, 2)]"),
        ({"temperature": 1 << 2000}, "temperature must be a number that a float can hold, got one of 2001 bits"),
        ({"ignore_eos": "no"}, "ignore_eos must be True or False, got 'no'"),
        ({"raw": "no"}, "raw must be True or False, got 'no'"),
        ({"drafter": ["ngram"]}, "drafter must be a name, got ['ngram']"),
        ({"rule": None}, "rule must be a name, got None"),
        ({"banned": [True]}, "banned must hold token ids in [0, 320), got True"),
        ({"prediction": 5}, "prediction must be a text, got int"),
        ({"stop": 5}, "stop must be a list, got 5"),
        ({"banned": 5}, "banned must be a list, got 5"),
        ({"allowed": "ab"}, "allowed must be a list, got 'ab'"),
        ({"stop_ids": None}, "stop_ids must be a list, got None"),
        ({"top_p": "x", "min_p": "y"}, "top_p must be a number, got 'x'; min_p must be a number, got 'y'"),
    ],
)
def test_an_option_of_another_type_is_refused_by_name(fake, options, message):
    for ask in (fake.generate, fake.stream) if "n" not in options else (fake.generate,):
        with refused(UsageError, message):
            ask(PROMPT, **options)


def test_what_is_no_name_of_a_model_is_refused():
    with refused(ModelNotFound, "a model is a name or a path, got None"):
        outpace.load(None)


def test_numbers_of_numpy_are_numbers(fake):
    given = {"max_tokens": np.int64(3), "top_k": np.int32(4), "temperature": np.float32(1), "seed": np.uint64(1)}
    plain = {"max_tokens": 3, "top_k": 4, "temperature": 1.0, "seed": 1}
    assert fake.generate(PROMPT, **given).tokens == fake.generate(PROMPT, **plain).tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 1.5}, "threads must be a whole number, got 1.5"),
        ({"context": "5"}, "context must be a whole number, got '5'"),
        ({"exit_layer": True}, "exit_layer must be a whole number, got True"),
        ({"draft_engine": "torch"}, "draft_engine is for a draft model, got 'torch' and no draft: name one"),
        ({"exit_layer": 0}, "exit_layer must be in [1, 1] of 2 layers, got 0"),
        ({"store": 5}, "a store is the name of a file, got 5"),
        ({"store": b"x"}, "a store is the name of a file, got b'x'"),
        ({"device": ""}, "device is for engine 'torch', got engine 'native': leave one of them out"),
    ],
)
def test_a_setting_of_load_that_would_do_nothing_is_refused(tiny_llama, options, message):
    with refused(UsageError, message):
        outpace.load(tiny_llama, **options)


def test_a_drafter_named_that_cannot_be_used_is_an_error(tiny_llama):
    model = Model(TableTarget(320), Text.from_weights(open_gguf(tiny_llama)))
    with pytest.raises(UsageError, match="drafter 'model' needs a draft model"):
        model.generate(PROMPT, raw=True, drafter="model")
    assert model.generate(PROMPT, raw=True, max_tokens=5).reason.startswith("automatic, no draft model")


def test_a_prompt_without_room_for_an_answer_is_refused(tiny_llama):
    model = Model(TableTarget(320, max_length=4), Text.from_weights(open_gguf(tiny_llama)))
    with pytest.raises(ContextOverflow, match=r"the prompt has \d+ tokens and the context holds 4"):
        model.generate("a rather long prompt", raw=True)


def test_the_text_at_the_end_of_the_context_is_plain_decodings(tiny_llama):
    text = Text.from_weights(open_gguf(tiny_llama))
    ids = len(text.encode(PROMPT, special=True))
    model = Model(TableTarget(320, max_length=ids + 7), text, TableTarget(320, order=1, max_length=ids + 4))
    results = [model.generate(PROMPT, raw=True, temperature=1, seed=1, **way) for way in WAYS]
    assert {result.tokens for result in results} == {results[0].tokens}
    assert len(results[0].tokens) == 7
    assert "draft model's context" in results[-2].fault  # of four tokens a round, whatever they cost


def test_counts_and_rates_add_up(model):
    result = model.generate(PROMPT, raw=True, max_tokens=40, temperature=1, seed=1, drafter="ngram", draft_length=4)
    assert sum(len(step.tokens) for step in result.steps) == len(result.tokens)
    assert result.accepted <= result.drafted
    assert len(result.tokens) == result.accepted + len(result.steps)
    assert result.tokens_per_step == len(result.tokens) / len(result.steps)
    assert all(a >= b for a, b in zip(result.accepted_by_position, result.accepted_by_position[1:], strict=False))


def test_nothing_drafted_has_no_acceptance_rate(model):
    result = model.generate(PROMPT, raw=True, max_tokens=10, drafter="none")
    assert result.acceptance_rate is None
    assert result.tokens_per_step == 1
    assert result.operations_factor == 1
    assert result.accepted_by_position == ()


def test_the_record_is_json_with_the_documented_keys(model):
    record = json.loads(json.dumps(model.generate(PROMPT, raw=True, max_tokens=10).record()))
    assert set(record) == {
        *("text", "tokens", "finish", "prompt_tokens", "tokens_per_step", "acceptance_rate", "accepted_by_position"),
        *("drafted", "accepted", "operations_factor", "draft_bytes", "reproducible", "model", "engine", "drafter"),
        *("rule", "lossless", "seed", "threads", "seconds", "reason", "fault", "choice", "logprobs", "others"),
        *("speedup", "expected"),
    }
    assert set(record["seconds"]) == {"load", "prefill", "decode", "draft", "score", "verify"}


def test_the_summary_is_one_line(model):
    for way in WAYS:
        summary = model.generate(PROMPT, raw=True, max_tokens=10, **way).summary()
        assert "\n" not in summary
        assert "tokens/s" in summary


def test_closing_a_stream_early_gives_the_caches_back(fake):
    before = fake.target.open_sessions, fake.draft.open_sessions
    generation = fake.stream(PROMPT, raw=True, max_tokens=100, drafter="model", draft_length=2)
    next(generation)
    generation.close()
    assert (fake.target.open_sessions, fake.draft.open_sessions) == before
    assert generation.result().finish == "cancelled"
    assert list(generation) == []


def test_an_observer_sees_every_round(fake):
    seen = []
    result = fake.generate(PROMPT, raw=True, max_tokens=20, observer=lambda o: seen.append(o.step.tokens))
    assert [token for tokens in seen for token in tokens] == list(result.tokens)


def test_a_chat_remembers_finished_turns_only(fake):
    chat = fake.chat(system="be brief")
    first = chat.send("ab", max_tokens=5)
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant"]
    assert chat.messages[-1]["content"] == first.text
    abandoned = chat.stream("abc", max_tokens=50)
    next(abandoned)
    abandoned.close()
    with pytest.raises(UsageError):
        chat.send("abc", max_tokens=0)
    assert len(chat.messages) == 3
    assert chat.send("ab", max_tokens=5).prompt_tokens > first.prompt_tokens


def test_a_draft_of_another_vocabulary_is_refused(tiny_llama, tmp_path):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    from gguf_writer import Tiny, tiny_metadata, tiny_model

    tokens = list(tiny_metadata(Tiny())["tokenizer.ggml.tokens"])
    tokens[40], tokens[41] = tokens[41], tokens[40]
    other = tiny_model(tmp_path / "other.gguf", **{"tokenizer.ggml.tokens": tokens})
    with pytest.raises(VocabularyMismatch, match=r"other cannot draft for llama: .*id 40"):
        outpace.load(tiny_llama, draft=other)


def test_a_draft_with_a_padded_head_is_accepted(tiny_llama, tiny_qwen2):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    model = outpace.load(tiny_llama, draft=tiny_qwen2)
    plain = model.generate(PROMPT, raw=True, max_tokens=30, temperature=1, seed=1, drafter="none")
    for rule in ("coupled", "rejection"):
        drafted = model.generate(PROMPT, raw=True, max_tokens=30, temperature=1, seed=1, draft_length=4, rule=rule)
        assert drafted.fault is None
        assert drafted.drafted > 0
        assert rule == "rejection" or drafted.tokens == plain.tokens


def test_a_draft_of_a_shorter_context_drafts_until_the_text_outgrows_it(tiny_llama, tmp_path):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    from gguf_writer import Tiny, tiny_model

    short = tiny_model(tmp_path / "short.gguf", Tiny(context=40))
    model = outpace.load(tiny_llama, draft=short, context=100)
    result = model.generate(PROMPT, raw=True, max_tokens=60, temperature=1, seed=2, draft_length=2)
    assert result.drafted > 0
    assert "the draft model's context holds 40 tokens" in result.fault
    assert (
        result.tokens == model.generate(PROMPT, raw=True, max_tokens=60, temperature=1, seed=2, drafter="none").tokens
    )


def test_acceptance_by_position_counts_the_drafts_that_reach_it():
    from outpace.types import Draft, Step, Timing, Verdict

    def step(drafted, accepted):
        draft = Draft.chain([0] * drafted)
        return Step(draft, Verdict(tuple(range(accepted)), 1), (0,) * accepted + (1,), None, Timing())

    assert accepted_by_position([step(3, 3), step(3, 0), step(1, 1), step(0, 0)]) == (2 / 3, 1 / 2, 1 / 2)


def test_a_lossy_rule_is_said_to_be_one(fake):
    lossy = fake.generate(PROMPT, raw=True, max_tokens=5, temperature=1, seed=1, rule="typical")
    assert lossy.record()["lossless"] is False
    assert "rule typical is lossy: not the model's own law" in lossy.summary()
    lossless = fake.generate(PROMPT, raw=True, max_tokens=5, temperature=1, seed=1)
    assert lossless.record()["lossless"] is True
    assert "lossy" not in lossless.summary()
