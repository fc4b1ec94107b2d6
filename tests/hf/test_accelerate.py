"""`model.generate` keeps its call, its settings and its output when outpace decodes."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from refusals import refused
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

import outpace.hf
from outpace.errors import Unsupported, UsageError
from tiny_torch import V, causal_model, seq2seq_model

PROMPT = torch.tensor([[5, 6, 7, 8, 5, 6, 7]])


@pytest.fixture(scope="module")
def original():
    return copy.deepcopy(causal_model("llama"))


@pytest.fixture
def model(original):
    yield outpace.hf.accelerate(original)
    if hasattr(original, "outpace"):
        outpace.hf.restore(original)


def both(model, *args, **how):
    """Returns what generate gives with us and without."""
    torch.manual_seed(0)
    ours = model.generate(*args, **how)
    outpace.hf.restore(model)
    torch.manual_seed(0)
    theirs = model.generate(*args, **how)
    outpace.hf.accelerate(model)
    return ours, theirs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 12},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
        {"min_new_tokens": 20, "eos_token_id": [9, 10, 11]},
        {"suppress_tokens": [4, 5, 6], "bad_words_ids": [[7, 8]]},
        {"eos_token_id": list(range(40, 60))},
        {"num_return_sequences": 1, "renormalize_logits": True, "forced_eos_token_id": 3},
    ],
    ids=str,
)
def test_greedy_output_is_transformers_own(model, settings):
    how = {"do_sample": False, "max_new_tokens": 24} | settings
    how = {name: value for name, value in how.items() if name != "max_new_tokens" or "max_length" not in settings}
    ours, theirs = both(model, PROMPT, attention_mask=torch.ones_like(PROMPT), **how)
    assert torch.equal(ours, theirs)


def test_a_padded_batch_gives_what_transformers_gives(model):
    ids = torch.tensor([[0, 0, 0, 5, 6, 7, 8], [5, 6, 7, 8, 5, 6, 7], [0, 9, 8, 9, 8, 9, 8]])
    how = {"attention_mask": (ids != 0).long(), "do_sample": False, "max_new_tokens": 16, "repetition_penalty": 1.1}
    how |= {"prefix_allowed_tokens_fn": lambda row, ids: list(range(4 + row, V))}
    ours, theirs = both(model, ids, **how, eos_token_id=list(range(30, 45)))
    assert torch.equal(ours, theirs)


def test_the_output_object_holds_the_same_scores_and_logits(model):
    how = {"do_sample": False, "max_new_tokens": 10, "return_dict_in_generate": True, "repetition_penalty": 1.2}
    how |= {"output_scores": True, "output_logits": True, "attention_mask": torch.ones_like(PROMPT)}
    ours, theirs = both(model, PROMPT, **how)
    assert type(ours) is type(theirs)
    assert torch.equal(ours.sequences, theirs.sequences)
    for name in ("scores", "logits"):
        assert len(ours[name]) == len(theirs[name]) == 10
        for a, b in zip(ours[name], theirs[name], strict=True):
            assert a.shape == b.shape
            assert torch.allclose(a, b, atol=1e-3)


def test_sampled_text_follows_torchs_seed_and_no_draft(model, original):
    how = {
        "do_sample": True,
        "temperature": 0.9,
        "top_p": 0.95,
        "top_k": 40,
        "max_new_tokens": 30,
        "eos_token_id": 96,
    }
    texts = []
    for drafter in ("auto", "none", "model"):
        outpace.hf.accelerate(original, drafter, draft=causal_model("llama", 1) if drafter == "model" else None)
        torch.manual_seed(11)
        texts.append(original.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **how).tolist())
    assert texts[0] == texts[1] == texts[2]
    torch.manual_seed(12)
    assert original.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **how).tolist() != texts[0]


def test_sampled_tokens_have_transformers_law(model):
    """One token, 4,000 draws each: no token's share is off by more than five standard errors."""
    n, ids = 4000, PROMPT
    how = {"do_sample": True, "top_k": 4, "max_new_tokens": 1, "attention_mask": torch.ones_like(PROMPT)}
    torch.manual_seed(1)
    law = model.generate(ids, **how, return_dict_in_generate=True, output_scores=True).scores[0].softmax(-1)[0]
    ours = model.generate(ids, **how, num_return_sequences=n)[:, -1]
    shares = torch.bincount(ours, minlength=V) / n
    assert ((shares - law).abs() <= 5 * (law * (1 - law) / n).sqrt() + 1e-9).all()


def test_several_return_sequences_differ_and_repeat(model):
    how = {
        "do_sample": True,
        "num_return_sequences": 3,
        "max_new_tokens": 12,
        "attention_mask": torch.ones_like(PROMPT),
    }
    torch.manual_seed(3)
    first = model.generate(PROMPT, **how)
    torch.manual_seed(3)
    assert torch.equal(model.generate(PROMPT, **how), first)
    assert len({tuple(row) for row in first.tolist()}) == 3


def test_processors_and_criteria_of_ones_own_act_at_every_position(model):
    def no_repeat(ids, scores):
        scores = scores.clone()
        scores[:, ids[0, -1]] = -float("inf")
        scores[:, (ids.shape[1] * 3) % V] += 5.0
        return scores

    def at_multiple_of_five(ids, scores, **more):
        return torch.tensor([int(ids[0, -1]) % 5 == 0 and ids.shape[1] > 15])

    how = {"do_sample": False, "max_new_tokens": 30, "attention_mask": torch.ones_like(PROMPT), "eos_token_id": None}
    ours, theirs = both(
        model,
        PROMPT,
        logits_processor=LogitsProcessorList([no_repeat]),
        stopping_criteria=StoppingCriteriaList([at_multiple_of_five]),
        **how,
    )
    assert torch.equal(ours, theirs)
    assert ours.shape[1] < 37


def test_a_streamer_sees_the_prompt_and_every_token_in_order(model):
    class Recorder:
        def __init__(self):
            self.tokens, self.ended = [], False

        def put(self, value):
            self.tokens += value.flatten().tolist()

        def end(self):
            self.ended = True

    seen = Recorder()
    out = model.generate(
        PROMPT, attention_mask=torch.ones_like(PROMPT), do_sample=False, max_new_tokens=12, streamer=seen
    )
    assert seen.tokens == out[0].tolist()
    assert seen.ended


def test_drafts_are_made_and_their_steps_are_kept(model):
    out = model.generate(PROMPT.repeat(1, 3), attention_mask=torch.ones(1, 21), do_sample=False, max_new_tokens=30)
    [steps] = model.outpace.steps
    assert sum(len(step.tokens) for step in steps) == out.shape[1] - 21


def test_transformers_own_ways_to_draft_are_mapped_and_said_once(model):
    how = {"attention_mask": torch.ones_like(PROMPT), "do_sample": False, "max_new_tokens": 12}
    plain = model.generate(PROMPT, **how)
    with pytest.warns(UserWarning, match="prompt_lookup_num_tokens is mapped to outpace's drafter 'ngram'"):
        assert torch.equal(model.generate(PROMPT, prompt_lookup_num_tokens=4, **how), plain)
    with pytest.warns(UserWarning, match="assistant_model is mapped to outpace's drafter 'model'"):
        assert torch.equal(model.generate(PROMPT, assistant_model=causal_model("llama", 1), **how), plain)
    config = GenerationConfig(prompt_lookup_num_tokens=3, max_new_tokens=12, do_sample=False, eos_token_id=1)
    assert torch.equal(model.generate(PROMPT, attention_mask=how["attention_mask"], generation_config=config), plain)
    assert config.prompt_lookup_num_tokens == 3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_beams": 3}, r"beam_search \(num_beams=3\)"),
        ({"num_beams": 3, "do_sample": True}, "beam_sample"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "honour output_attentions: leave"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states"),
        ({"use_cache": False}, "use_cache=False"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"max_new_tokens": 100}, "max_length must be at most 64"),
        ({"custom_generate": print}, "custom_generate replaces"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(model, settings, named):
    with pytest.raises(UsageError, match=named):
        model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **{"max_new_tokens": 4} | settings)


def test_padding_on_the_right_is_refused(model):
    ids = torch.tensor([[5, 6, 0], [5, 6, 7]])
    with refused(UsageError, "prompt 0 must be padded on the left alone: set padding_side='left'"):
        model.generate(ids, attention_mask=torch.tensor([[1, 1, 0], [1, 1, 1]]), max_new_tokens=4, pad_token_id=90)


def test_restoring_brings_the_models_own_generate_back(original):
    attention = original.config._attn_implementation
    outpace.hf.accelerate(original)
    assert original.config._attn_implementation == "outpace_sdpa"
    outpace.hf.restore(original)
    assert original.config._attn_implementation == attention
    assert "generate" not in vars(original)
    with refused(UsageError, "LlamaForCausalLM was not accelerated: there is nothing to restore"):
        outpace.hf.restore(original)


def test_the_hook_serves_one_call(original):
    how = {"attention_mask": torch.ones_like(PROMPT), "do_sample": False, "max_new_tokens": 12}
    expected = original.generate(PROMPT, **how)
    assert torch.equal(original.generate(PROMPT, custom_generate=outpace.hf.custom_generate, **how), expected)


@pytest.mark.parametrize("name", ["t5", "bart", "marian"])
def test_encoder_decoders_are_accelerated_too(name):
    model = copy.deepcopy(seq2seq_model(name))
    ids = torch.tensor([[5, 6, 7, 8, 1, 0, 0], [9, 8, 7, 6, 5, 4, 1]])
    how = {"attention_mask": (ids != 0).long(), "do_sample": False, "max_new_tokens": 14}
    expected = model.generate(ids, **how)
    outpace.hf.accelerate(model)
    assert torch.equal(model.generate(ids, **how), expected)
    outpace.hf.accelerate(model, draft=seq2seq_model(name, 1))
    assert torch.equal(model.generate(ids, **how), expected)


def test_whisper_is_told_where_to_go():
    with refused(
        Unsupported,
        "WhisperForConditionalGeneration has a generate of its own around the decoder: "
        "load it by outpace.load(..., engine='torch') instead",
    ):
        outpace.hf.accelerate(seq2seq_model("whisper"))
