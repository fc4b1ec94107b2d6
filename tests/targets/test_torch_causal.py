"""Any causal model of transformers: what is drafted changes nothing, whatever its attention and cache are."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from refusals import refused
from transformers import AutoModelForCausalLM, MambaConfig

from fakes import adversarial, plain, run, scripted, start
from outpace.decode import propose
from outpace.errors import TooLarge, Unsupported, UsageError
from outpace.registry import DRAFTERS
from outpace.targets import torch_causal, torch_models, torch_static
from outpace.targets.torch_causal import TorchTarget
from outpace.types import EMPTY, Draft, Prompt
from tiny_torch import CAUSAL, WINDOW, V, causal_model, config, recorded_target, torch_target

PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)


@pytest.fixture(scope="module", params=[*CAUSAL, *(f"{name} recorded" for name in CAUSAL)])
def target(request):
    name, _, recorded = request.param.partition(" ")
    if not recorded:
        yield torch_target(name)
        return
    with pytest.MonkeyPatch.context() as patch:  # so that texts outgrow what is looked at, and the buffers
        patch.setattr(torch_static, "LEAST_SLOTS", 16)
        patch.setattr(torch_static, "CAPACITY", 32)
        made = recorded_target(name)
        yield made
        assert made.passes == "a tape over a static cache"


def drafters(target, truth):
    yield DRAFTERS.get("ngram")(target)
    yield DRAFTERS.get("model")(target, torch_target("llama", seed=1))
    yield scripted(truth, V, "RRRW")
    yield adversarial(V)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_plain_decodings_whatever_is_drafted(target, temperature):
    eager = torch_target(target.name)
    expected = plain(eager, PROMPT, temperature=temperature, max_tokens=3 * WINDOW)
    assert plain(target, PROMPT, temperature=temperature, max_tokens=3 * WINDOW) == expected
    for drafter in drafters(target, expected):
        one, _ = run(target, PROMPT, drafter, temperature=temperature, max_tokens=3 * WINDOW)
        assert one.committed == expected, drafter.name
        assert one.fault is None


def test_greedy_text_is_what_generate_writes(target):
    expected = target.model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False, max_new_tokens=24
    )
    assert plain(target, PROMPT, max_tokens=24) == expected[0].tolist()


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_model_that_drafts_for_itself_is_always_accepted(target, rule):
    drafter = DRAFTERS.get("model")(target, target)
    one, steps = run(
        target, (3, 4), drafter, rule=rule, temperature=1.0, max_tokens=59, draft_length=1, stop=lambda t: None
    )
    assert len(steps) >= 28
    assert all(step.accepted == step.drafted for step in steps)
    assert one.fault is None


def test_the_logits_are_those_of_one_forward_without_a_cache(target):
    ids = [*PROMPT, *range(10, 10 + 2 * WINDOW)]
    with torch.inference_mode():
        expected = target.model(torch.tensor([ids])).logits[0].numpy()
    session, _ = target.open(Prompt(tuple(ids[:5])))
    [scores] = target.score_many([(session, Draft.chain(ids[5:]))])
    assert np.allclose(scores.logits, expected[4:], atol=1e-4)


def test_trees_are_scored_across_the_edge_of_a_window(target):
    ids = tuple(range(2, 2 + WINDOW + 3))
    session, _ = target.open(Prompt(ids))
    tree = Draft((9, 8, 7, 6, 5, 4), (-1, -1, 0, 1, 3, 4), (None,) * 6)
    rows = target.score_many([(session, tree)])[0].logits
    path = (1, 3, 4, 5)
    with torch.inference_mode():
        expected = target.model(torch.tensor([[*ids, *(tree.tokens[i] for i in path)]])).logits[0].numpy()
    assert np.allclose(rows[[0, *(i + 1 for i in path)]], expected[len(ids) - 1 :], atol=1e-4)


def test_requests_of_different_lengths_in_one_pass_write_their_own_texts(target):
    drafter = DRAFTERS.get("ngram")(target)
    prompts = [PROMPT, (4,), tuple(range(2, 30)), (9, 8, 9, 8, 9)]
    rounds = [start(target, ids, drafter, temperature=1.0, seed=i, max_tokens=20) for i, ids in enumerate(prompts)]
    while active := [one for one in rounds if not one.finish]:
        drafts = propose(drafter, active)
        scores = target.score_many([(one.session, draft) for one, draft in zip(active, drafts, strict=True)])
        rows = sum(1 + len(draft) for draft in drafts)
        for one, draft, score in zip(active, drafts, scores, strict=True):
            one.advance(draft, score, 0.0, 0.0, rows)
    for i, (ids, one) in enumerate(zip(prompts, rounds, strict=True)):
        assert one.committed == plain(target, ids, temperature=1.0, seed=i, max_tokens=20)


def test_tapped_states_are_the_layers_outputs(target):
    taps = (0, target.hidden_layers - 1)
    session, context = target.open(Prompt(PROMPT), taps)
    [scores] = target.score_many([(session, Draft.chain((1, 2)))])
    with torch.inference_mode():
        out = target.model(torch.tensor([[*PROMPT, 1, 2]]), output_hidden_states=True)
    assert context.hidden.shape == (len(PROMPT) - 1, 2, 32)
    joined = np.concatenate([context.hidden, scores.hidden])
    assert np.allclose(joined[:, 0], out.hidden_states[1][0].numpy(), atol=1e-4)
    assert np.allclose(target.head(joined[:, 1]), out.logits[0].numpy(), atol=1e-3)
    assert np.allclose(target.embed(PROMPT), out.hidden_states[0][0, : len(PROMPT)].numpy(), atol=1e-4) or (
        target.name == "gpt2"  # whose first state has the positions added
    )


def test_a_prompt_that_goes_on_where_another_ended_reuses_its_cache(target):
    first = plain(target, PROMPT, max_tokens=8)
    session, _ = target.open(Prompt((1, 2, 3)))
    session.close()
    again, _ = target.open(Prompt(tuple(first)))
    expected = target.score_many([(again, EMPTY)])[0].logits
    again.close()
    kept = target._reused(first)
    assert kept.length == len(first) - 1
    with torch.inference_mode():
        assert np.allclose(target.model(torch.tensor([first])).logits[0, -1].numpy(), expected[0], atol=1e-4)


def test_a_recurrent_model_is_refused_with_the_reason():
    model = AutoModelForCausalLM.from_config(MambaConfig(vocab_size=V, hidden_size=16, num_hidden_layers=1))
    with refused(
        Unsupported,
        "MambaForCausalLM has layers of the kind linear_attention: their state cannot be "
        "rewound after a rejected draft, so the text would change; a model with attention "
        "in every layer works",
    ):
        TorchTarget(model, "mamba")


def test_a_model_that_ignores_its_cache_is_refused():
    model = AutoModelForCausalLM.from_config(config("llama")).eval()
    forward = model.model.forward
    model.model.forward = lambda **how: forward(how["input_ids"], position_ids=how["position_ids"])
    with refused(Unsupported, "deaf: the model does not use the cache that it is given, so nothing rewinds it"):
        TorchTarget(model, "deaf")


def test_a_model_whose_drafts_are_scored_wrongly_is_refused(monkeypatch):
    model = causal_model("llama")
    monkeypatch.setattr(torch_causal, "caller", lambda model: lambda *how: torch_models.caller(model)(*how).flip(1))
    with refused(
        Unsupported,
        "broken: several tokens scored in one pass are not scored as one at a time (off "
        "by 5.6): LlamaForCausalLM cannot verify drafts",
    ):
        TorchTarget(model, "broken")


def test_logits_that_are_not_numbers_are_refused():
    model = copy.deepcopy(causal_model("llama"))
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with refused(Unsupported, "nan: its logits are not numbers in float32; load it in float32"):
        TorchTarget(model, "nan")


def test_attention_without_masks_is_refused():
    model = AutoModelForCausalLM.from_config(config("llama")).eval()
    model.config._attn_implementation_internal = "flash_attention_2"
    with refused(
        Unsupported,
        "attention 'flash_attention_2' cannot be given the masks of drafts: load the "
        "model with attn_implementation='sdpa'",
    ):
        TorchTarget(model, "flash")


def test_memory_that_runs_out_is_one_sentence_with_sizes(target):
    with (
        refused(
            TooLarge,
            "out of memory: tiny has 0 MB of weights in float32, the device is cpu; a shorter "
            "context, a smaller type or fewer requests may fit",
        ),
        torch_models.explained("tiny", target.model),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_other_errors_of_a_model_stay_what_they_are(target):
    with pytest.raises(RuntimeError, match="shape"), torch_models.explained("tiny", target.model):
        raise RuntimeError("wrong shape")


def test_tokens_that_the_model_does_not_have_are_refused(target):
    session, _ = target.open(Prompt(PROMPT))
    with refused(UsageError, f"token ids must be in [0, {V}), got ({V},)"):
        target.score_many([(session, Draft.chain((V,)))])
    with refused(UsageError, "a draft of 60 tokens does not fit: 8 of 64 positions are taken"):
        target.score_many([(session, Draft.chain((1,) * 60))])
    with refused(UsageError, "a commit must follow the scores of its draft: 1 rows, 0 scored"):
        session.commit(EMPTY, run(target, (1,), DRAFTERS.get("none")(target), max_tokens=1)[1][0].verdict)


def test_a_context_beyond_the_models_own_is_refused():
    with refused(UsageError, "context must be in [1, 64], what the model was made for, got 65"):
        TorchTarget(causal_model("llama"), "llama", context=65)
