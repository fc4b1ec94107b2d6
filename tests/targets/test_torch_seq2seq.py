"""Encoder-decoders of transformers: one encoder pass, a decoder that drafts change nothing about."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from refusals import refused

from fakes import plain, run, scripted, start
from outpace.decode import propose
from outpace.errors import Unsupported, UsageError
from outpace.registry import DRAFTERS
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_seq2seq import TorchSeq2Seq
from outpace.types import EMPTY, Budget, Draft, Prompt
from tiny_torch import SEQ2SEQ, V, causal_model, seq2seq_model, seq2seq_target


@pytest.fixture(scope="module", params=SEQ2SEQ)
def target(request):
    return seq2seq_target(request.param)


def source_of(target, seed=0):
    rng = np.random.default_rng(seed)
    if target.takes_features:
        return rng.standard_normal((40, 8)).astype(np.float32)
    return tuple(rng.integers(4, V, 12 + seed).tolist())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_plain_decodings_whatever_is_drafted(target, temperature):
    source = source_of(target)
    how = {"source": source, "temperature": temperature, "max_tokens": 24}
    expected = plain(target, target.start_ids, **how)
    drafters = [
        DRAFTERS.get("ngram")(target),
        DRAFTERS.get("model")(target, seq2seq_target(target.name, seed=1)),
        DRAFTERS.get("model")(target, target.cut_down(1)),
        scripted(expected, V, "RRRW"),
    ]
    for drafter in drafters:
        one, _ = run(target, target.start_ids, drafter, **how)
        assert one.committed == expected, drafter.name
        assert one.fault is None


def test_greedy_text_is_what_generate_writes(target):
    source = source_of(target)
    if target.takes_features:
        pytest.skip("Whisper's own generate cuts speech into segments")
    expected = target.model.generate(torch.tensor([source]), do_sample=False, max_new_tokens=20, num_beams=1)
    ours = plain(target, target.start_ids, source=source, max_tokens=20)
    assert ours == expected[0].tolist()


def test_scores_are_those_of_one_forward_without_a_cache(target):
    source, ids = source_of(target), (*target.start_ids, 5, 6, 7, 8)
    session, context = target.open(Prompt(ids[:2], source))
    [scores] = target.score_many([(session, Draft.chain(ids[2:]))])
    how = {"decoder_input_ids": torch.tensor([ids]), "use_cache": False}
    name = "input_features" if target.takes_features else "input_ids"
    given = torch.from_numpy(source).T[None] if target.takes_features else torch.tensor([source])
    with torch.inference_mode():
        expected = target.model(**{name: given}, **how).logits[0].numpy()
    assert np.allclose(scores.logits, expected[1:], atol=1e-4)
    assert context.encoded.states.shape[0] == 1


def test_a_model_that_drafts_for_itself_is_always_accepted(target):
    drafter = DRAFTERS.get("model")(target, target)
    how = {"source": source_of(target), "temperature": 1.0, "draft_length": 1, "max_tokens": 60}
    _, steps = run(target, target.start_ids, drafter, stop=lambda t: None, **how)
    assert len(steps) >= 28
    assert all(step.accepted == step.drafted for step in steps)


def test_a_relative_with_the_same_encoder_takes_its_output(target):
    _, context = target.open(Prompt(target.start_ids, source_of(target)))
    assert target.cut_down(1).takes_encoded(context.encoded)
    assert TorchSeq2Seq(target.model, "again").takes_encoded(context.encoded)
    assert not seq2seq_target(target.name, seed=1).takes_encoded(context.encoded)
    drafter, calls = DRAFTERS.get("model")(target, target.cut_down(1)), []
    handle = target.model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    run(target, target.start_ids, drafter, source=source_of(target, 1))
    handle.remove()
    assert len(calls) == 1


def test_requests_with_different_sources_in_one_call_write_their_own_texts(target):
    drafter = DRAFTERS.get("ngram")(target)
    sources = [source_of(target, seed) for seed in range(3)]
    how = {"temperature": 1.0, "max_tokens": 12}
    rounds = [start(target, target.start_ids, drafter, source=source, **how) for source in sources]
    while active := [one for one in rounds if not one.finish]:
        drafts = propose(drafter, active)
        scores = target.score_many([(one.session, draft) for one, draft in zip(active, drafts, strict=True)])
        for one, draft, score in zip(active, drafts, scores, strict=True):
            one.advance(draft, score, 0.0, 0.0)
    for source, one in zip(sources, rounds, strict=True):
        assert one.committed == plain(target, target.start_ids, source=source, **how)


def test_a_tree_is_refused_by_name(target):
    assert not target.scores_trees
    session, _ = target.open(Prompt(target.start_ids, source_of(target)))
    with refused(UsageError, f"{target.name} scores chains, got a tree: use a drafter of chains"):
        target.score_many([(session, Draft((4, 5), (-1, -1), (None, None)))])


def test_a_prompt_without_a_source_is_refused(target):
    with refused(UsageError, f"{target.name} is an encoder-decoder: the prompt needs a source"):
        target.open(Prompt(target.start_ids))


def test_a_rewound_session_scores_as_a_fresh_one(target):
    prompt = Prompt((*target.start_ids, 5, 6, 7), source_of(target))
    session, _ = target.open(prompt)
    target.score_many([(session, EMPTY)])
    session.rewind(1, 9)
    fresh, _ = target.open(Prompt((*target.start_ids, 9), prompt.source))
    rows = [target.score_many([(one, EMPTY)])[0].logits for one in (session, fresh)]
    assert np.allclose(rows[0], rows[1], atol=1e-4)


def test_n_grams_of_the_source_are_drafted():
    target = seq2seq_target("t5")
    source = (9, 10, 11, 12, 13, 14, 15)
    drafter = DRAFTERS.get("ngram")(target)
    session = drafter.open(Prompt((0, 10, 11), source), target.open(Prompt((0,), source))[1], None)
    [draft] = drafter.propose_many([(session, Budget.chain(3))])
    assert draft.tokens == (12, 13, 14)


def test_the_other_kind_of_model_is_refused():
    with refused(Unsupported, "LlamaForCausalLM has no encoder: it is a target for `TorchTarget`"):
        TorchSeq2Seq(causal_model("llama"), "llama")
    with refused(
        Unsupported, "BartForConditionalGeneration is an encoder-decoder: it is a target for `TorchSeq2Seq`"
    ):
        TorchTarget(seq2seq_model("bart"), "bart")
    with refused(UsageError, "layers must be in [1, 2), got 2"):
        seq2seq_target("bart").cut_down(2)
