"""Every parameter, moderate and extreme: whatever drafts, the text is plain decoding's, and the parameter is kept."""

from __future__ import annotations

import numpy as np
import pytest

import outpace
from fakes import PATTERNS, TableTarget, adversarial, plain, run, scripted
from outpace.api import Model
from outpace.errors import UsageError
from outpace.native.gguf import open_gguf
from outpace.processors import Adjustments
from outpace.text import Text

PROMPT = "ab abc ab ab abc"
SMALL = list(range(65, 90))
PARAMETERS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 100.0},
    {"repetition_penalty": 0.01},
    {"presence_penalty": 0.6},
    {"presence_penalty": 2.0},
    {"presence_penalty": -2.0},
    {"frequency_penalty": 0.3},
    {"frequency_penalty": 2.0},
    {"frequency_penalty": -2.0},
    {"logit_bias": {70: 3.0, 71: -3.0}},
    {"logit_bias": dict.fromkeys(SMALL, 100.0) | dict.fromkeys(range(65), -100.0)},
    {"banned": SMALL},
    {"banned": list(range(1, 320))},
    {"allowed": SMALL},
    {"allowed": [70]},
    {"min_tokens": 20},
    {"min_tokens": 32, "stop_ids": list(range(0, 320, 3))},
    {"stop_ids": list(range(0, 320, 5))},
    {"ignore_eos": True},
    {"stop": ["a", "e"], "min_tokens": 9},
    {"top_k": 3, "min_p": 0.1, "top_p": 0.8, "repetition_penalty": 1.2, "frequency_penalty": 0.4, "banned": [80]},
    {"allowed": SMALL, "frequency_penalty": 2.0, "presence_penalty": 2.0, "logit_bias": {70: 9.0}, "min_tokens": 5},
]
WAYS = [
    *({"drafter": "ngram", "draft_length": n} for n in (1, 3, 8)),
    *({"drafter": "model", "draft_length": n} for n in (1, 4)),
    {"drafter": "model"},
]


def names(wanted):
    return ",".join(f"{name}={value!r:.12}" for name, value in wanted.items())


@pytest.fixture(scope="module")
def fake(tiny_llama):
    text = Text.from_weights(open_gguf(tiny_llama))
    eos = range(0, 320, 40)
    return Model(
        TableTarget(320, order=2, spread=4.0, eos_ids=eos), text, TableTarget(320, order=1, seed=3, spread=4.0)
    )


@pytest.fixture(params=["fake", "native"])
def model(request):
    return request.getfixturevalue(request.param)


def generate(model, wanted, **more):
    return model.generate(PROMPT, **({"raw": True, "max_tokens": 32, "seed": 5} | wanted | more))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("wanted", PARAMETERS, ids=names)
def test_every_drafter_gives_the_plain_text(model, wanted, temperature):
    expected = generate(model, wanted, temperature=temperature, drafter="none")
    for way in WAYS:
        result = generate(model, wanted, temperature=temperature, **way)
        assert (result.tokens, result.text, result.finish) == (expected.tokens, expected.text, expected.finish)
        assert result.fault is None


@pytest.mark.parametrize("wanted", PARAMETERS, ids=names)
def test_greedy_text_is_the_same_under_rejection(model, wanted):
    expected = generate(model, wanted, drafter="none").tokens
    for way in WAYS:
        assert generate(model, wanted, rule="rejection", **way).tokens == expected


@pytest.mark.parametrize("wanted", PARAMETERS, ids=names)
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_model_drafting_for_itself_is_always_right(native, wanted, rule):
    result = generate(native, wanted, rule=rule, temperature=0.8, drafter="model", draft_length=3)
    assert all(step.accepted == step.drafted for step in result.steps if not step.finish)


ADJUSTMENTS = [
    Adjustments(repetition_penalty=1.5),
    Adjustments(repetition_penalty=100.0, frequency_penalty=-2.0),
    Adjustments(frequency_penalty=2.0, presence_penalty=2.0),
    Adjustments(logit_bias={0: 5.0, 1: -5.0}, banned=frozenset({2})),
    Adjustments(allowed=frozenset({1, 3, 4}), frequency_penalty=0.7),
    Adjustments(min_tokens=15, withheld=frozenset({5})),
]


@pytest.mark.parametrize("adjustments", ADJUSTMENTS, ids=range(len(ADJUSTMENTS)))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scripted_and_hostile_drafts_change_nothing(adjustments, temperature):
    target = TableTarget(6, eos_ids=[5])
    options = {"temperature": temperature, "adjustments": adjustments}
    expected = plain(target, [1, 2], **options)
    for length in (1, 2, 5, 9):
        for drafter in (*(scripted(expected, 6, pattern) for pattern in PATTERNS), adversarial(6)):
            assert run(target, [1, 2], drafter, draft_length=length, **options)[0].committed == expected
    one, _ = run(target, [1, 2], scripted(expected, 6, "R"), draft_length=3, **options)
    assert one.committed == expected


# -- what each parameter promises ----------------------------------------------------------------------


def test_a_presence_penalty_acts_inside_the_block_that_brings_the_token():
    """Two logits 1 apart and a penalty of 2: the greedy text alternates, in a block as one token at a time."""
    target = TableTarget(2, logits=lambda path: [0.0, 1.0])
    truth = plain(target, [0], adjustments=Adjustments(frequency_penalty=2.0), max_tokens=8)
    assert truth[1:] == [1, 0, 1, 0, 1, 0, 1, 0]
    for drafter in (scripted(truth, 2, "R"), scripted([0] + [1] * 8, 2, "R")):
        one, _ = run(target, [0], drafter, adjustments=Adjustments(frequency_penalty=2.0), max_tokens=8)
        assert one.committed == truth


@pytest.mark.parametrize("way", [{"drafter": "none"}, *WAYS])
def test_bans_and_permissions_hold_for_every_token(model, way):
    options = {"temperature": 1.5, "ignore_eos": True, "max_tokens": 60} | way
    assert set(generate(model, {"allowed": SMALL, "banned": SMALL[:5]}, **options).tokens) <= set(SMALL[5:])
    assert not set(generate(model, {"banned": SMALL}, **options).tokens) & set(SMALL)
    assert set(generate(model, {"logit_bias": {70: 100.0}}, **options).tokens) == {70}


@pytest.mark.parametrize("way", [{"drafter": "none"}, *WAYS])
def test_nothing_ends_a_text_before_min_tokens(fake, way):
    stops = {"stop_ids": list(range(0, 320, 3)), "stop": ["a", "b", "c", "d", "e"], "temperature": 1.0}
    lengths = [len(generate(fake, stops, min_tokens=n, **way).tokens) for n in (0, 5, 12, 31)]
    assert all(length > n for length, n in zip(lengths, (0, 5, 12, 31), strict=True))
    result = generate(fake, stops, min_tokens=12, **way)
    assert not set(result.tokens[:12]) & {*stops["stop_ids"], *fake.target.eos_ids}


def test_a_stop_id_ends_the_text_and_adds_nothing_to_it(fake):
    whole = generate(fake, {"ignore_eos": True, "temperature": 1.0})
    stop = whole.tokens[7]
    first = whole.tokens.index(stop)
    for way in ({"drafter": "none"}, *WAYS):
        result = generate(fake, {"ignore_eos": True, "temperature": 1.0, "stop_ids": [stop]}, **way)
        assert result.tokens == whole.tokens[: first + 1]
        assert result.text == fake.text.decode(result.tokens[:-1])
        assert result.finish == "stop"


def test_ignoring_eos_goes_on_with_the_same_draws(fake):
    wanted = {"temperature": 1.0, "max_tokens": 200}
    ended, went_on = generate(fake, wanted), generate(fake, wanted, ignore_eos=True)
    assert ended.finish == "stop"
    assert ended.tokens[-1] in fake.target.eos_ids
    assert went_on.tokens[: len(ended.tokens)] == ended.tokens
    assert len(went_on.tokens) == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_tokens": 33}, r"min_tokens must be at most max_tokens \(32\), got 33"),
        ({"stop_ids": [320]}, r"stop_ids must hold token ids in \[0, 320\), got 320"),
        ({"n": 0}, r"n must be in \[1, 128\], got 0"),
        ({"choice": -1}, r"choice must be in \[0, 16777216\), got -1"),
        ({"repetition_penalty": -1.0, "presence_penalty": 9.0}, "repetition_penalty must be"),
        ({"allowed": []}, "every token is banned"),
    ],
)
def test_a_mistake_is_one_clear_sentence(fake, options, message):
    with pytest.raises(UsageError, match=message):
        generate(fake, options)


# -- choices ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_choices_differ_and_each_is_the_text_of_its_own_call(model, rule):
    wanted = {"temperature": 1.0, "drafter": "model", "draft_length": 3, "rule": rule}
    result = generate(model, wanted, n=4)
    assert result.tokens == generate(model, wanted).tokens
    assert [one.choice for one in result.choices] == [0, 1, 2, 3]
    assert len({one.tokens for one in result.choices}) == 4
    for one in result.choices:
        assert generate(model, wanted, choice=one.choice).tokens == one.tokens
    assert [one["choice"] for one in result.record()["others"]] == [1, 2, 3]
    if rule == "coupled":
        assert [one.tokens for one in generate(model, wanted, n=4, drafter="none", draft_length=None).choices] == [
            one.tokens for one in result.choices
        ]


def test_choices_of_an_unseeded_call_share_the_seed_that_was_drawn(fake, monkeypatch):
    monkeypatch.setattr("outpace.options.secrets.randbits", lambda bits: 7)  # with some seeds two short texts are one
    results = generate(fake, {"temperature": 1.0, "seed": None, "n": 3}).choices
    (seed,) = {one.seed for one in results}
    seeded = generate(fake, {"temperature": 1.0, "seed": seed, "n": 3}).choices
    assert [one.tokens for one in results] == [one.tokens for one in seeded]


def test_the_prompt_is_prefilled_once_for_all_choices(native, monkeypatch):
    prompt = "a prompt of its own that no other request has had before"
    cached = []
    open_session = native.target.open

    def counting(given, taps=()):
        cached.append(native.target._prefixes.longest(given.ids[:-1], taps)[1])
        return open_session(given, taps)

    monkeypatch.setattr(native.target, "open", counting)
    native.generate(prompt, raw=True, n=3, max_tokens=4, temperature=1.0, seed=1)
    whole = len(native.text.encode(prompt, special=True)) - 1
    assert cached[0] < whole
    assert cached[1:] == [whole, whole]


def test_one_stream_is_one_text(fake):
    with pytest.raises(UsageError, match="n must be 1 for one stream, got 2: `streams`"):
        fake.stream(PROMPT, raw=True, n=2)
    streams = fake.streams(PROMPT, raw=True, n=2, temperature=1, seed=5, max_tokens=32)
    texts = ["".join(chunk.text for chunk in stream) for stream in streams]
    assert texts == [one.text for one in generate(fake, {"temperature": 1.0, "n": 2}).choices]


# -- a real model ----------------------------------------------------------------------

REAL = [
    {"repetition_penalty": 1.2, "presence_penalty": 0.4},
    {"frequency_penalty": 1.0, "logit_bias": {28: -5.0}, "min_tokens": 24, "top_p": 0.9},
    {"banned": [28, 30, 198], "repetition_penalty": 1.05, "min_p": 0.05},
]


@pytest.mark.embedded
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("wanted", REAL, ids=names)
def test_the_embedded_model_keeps_its_text(embedded_model, wanted, temperature):
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    options = {"max_tokens": 32, "seed": 7, "temperature": temperature, "logprobs": 2} | wanted
    with outpace.load(embedded_model, draft=embedded_model, context=512) as model:
        expected = model.generate("Write about the sea, and the sea, and the sea.", drafter="none", **options)
        for way in ({"drafter": "ngram", "draft_length": 5}, {"drafter": "model", "draft_length": 4}):
            result = model.generate("Write about the sea, and the sea, and the sea.", **options, **way)
            assert result.tokens == expected.tokens
            assert result.logprobs == expected.logprobs
            if way["drafter"] == "model":
                assert all(step.accepted == step.drafted for step in result.steps if not step.finish)
        assert np.isfinite([one.logprob for one in expected.logprobs]).all()
