"""Heads as others publish them: both layouts load, compute what the papers say, and change no text."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from published_heads import DRAFT_V, LAYER, LAYERS, PUBLISHED, eight_layers, write
from refusals import refused
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

import outpace
from fakes import plain, run
from outpace import models
from outpace.errors import UsageError
from outpace.heads.published import published_head, published_kind
from outpace.registry import DRAFTERS
from outpace.types import Draft, Prompt

PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)


@pytest.fixture(scope="module")
def target():
    return eight_layers()


@pytest.fixture(params=PUBLISHED)
def folder(request, tmp_path):
    return write(tmp_path / "head", *PUBLISHED[request.param])


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_drafts_of_a_published_head_change_no_text(target, folder, rule):
    head = published_head(folder, target)
    drafter = DRAFTERS.get("published")(target, head)
    for temperature in (0.0, 1.0):
        one, steps = run(target, PROMPT, drafter, rule=rule, temperature=temperature, draft_length=3, max_tokens=16)
        assert one.fault is None
        assert sum(step.drafted for step in steps) > 0
        if rule == "coupled" or not temperature:
            assert one.committed == plain(target, PROMPT, temperature=temperature, max_tokens=16)


def features(target, ids):
    with torch.inference_mode():
        out = target.model(torch.tensor([ids]), output_hidden_states=True)
    return out.hidden_states


def test_eagle_is_one_llama_layer_on_features_and_shifted_embeddings(target, tmp_path):
    described, file, tensors = PUBLISHED["eagle by its authors"]
    head = published_head(write(tmp_path / "e", described, file, tensors), target)
    layer = LlamaDecoderLayer(LlamaConfig(**LAYER, attn_implementation="sdpa"), 0).eval()
    own = {name.removeprefix("layers.0."): one for name, one in tensors.items() if name.startswith("layers.0.")}
    layer.load_state_dict(own, strict=False)
    layer.input_layernorm = torch.nn.Identity()
    ids, guess = [5, 6, 7, 8, 9], 11
    states = features(target, ids[:-1])[-1][0]  # behind the final norm, as the model returns the last
    embedded = tensors["embed_tokens.weight"]
    rotary = LlamaRotaryEmbedding(LlamaConfig(**LAYER))

    def forward(x):
        with torch.inference_mode():
            return layer(x[None], position_embeddings=rotary(x[None], torch.arange(len(x))[None]))[0]

    def fused(rows, tokens):
        return torch.cat((embedded[tokens], rows), 1) @ tensors["fc.weight"].T + tensors["fc.bias"]

    rows = fused(states, ids[1:])
    first = forward(rows)[-1:]
    second = forward(torch.cat((rows, fused(first, [guess]))))[-1:]
    place = head.open()
    _, context = target.open(Prompt(tuple(ids)), head.taps)
    place.begin(context.hidden, ids[1:])
    output = target.model.get_output_embeddings().weight
    with torch.inference_mode():
        assert np.allclose(place.next([]), (first @ output.T)[0].numpy(), atol=1e-3)
        assert np.allclose(place.next([guess]), (second @ output.T)[0].numpy(), atol=1e-3)


def test_eagle_3_fuses_the_layers_that_its_authors_read(target, tmp_path):
    by_authors = published_head(write(tmp_path / "a", *PUBLISHED["eagle-3 by its authors"]), target)
    of_speculators = published_head(write(tmp_path / "b", *PUBLISHED["eagle-3 of speculators"]), target)
    assert by_authors.taps == (1, LAYERS // 2 - 1, LAYERS - 4)
    assert of_speculators.taps == (0, 3, 6)
    _, context = target.open(Prompt(PROMPT), by_authors.taps)
    place = by_authors.open()
    place.begin(context.hidden, PROMPT[1:])
    row = place.next([])
    proposed = np.flatnonzero(np.isfinite(row))
    assert proposed.tolist() == [2 * i + i % 2 for i in range(DRAFT_V)]


def test_a_place_that_goes_on_gives_what_a_fresh_one_gives(target, folder):
    head = published_head(folder, target)
    place = head.open()
    session, context = target.open(Prompt(PROMPT), head.taps)
    place.begin(context.hidden, PROMPT[1:])
    guesses = [int(np.argmax(place.next([]))), 4]
    place.next(guesses[:1])
    draft = Draft.chain((9, 8))
    [scores] = target.score_many([(session, draft)])
    place.begin(scores.hidden, [9, 8, 3])
    going_on = [place.next([]), place.next([4])]
    ids = (*PROMPT, 9, 8, 3)
    fresh = head.open()
    _, context = target.open(Prompt(ids), head.taps)
    fresh.begin(context.hidden, ids[1:])
    for kept, anew in zip(going_on, [fresh.next([]), fresh.next([4])], strict=True):
        assert np.allclose(kept, anew, atol=1e-3)


def test_a_head_is_named_where_a_draft_model_is(tiny_llama, tmp_path):
    folder = models.export(tiny_llama, tmp_path / "tiny", "float32")
    hidden, vocab = 64, 320
    tensors = {"0.0.linear.weight": torch.randn(hidden, hidden), "0.0.linear.bias": torch.zeros(hidden)}
    tensors["0.1.weight"] = torch.randn(vocab, hidden)
    head = write(tmp_path / "m", {"medusa_num_heads": 1}, "medusa_lm_head.safetensors", tensors)
    with outpace.load(folder, draft=head, engine="torch", device="cpu", threads=1) as model:
        result = model.generate("aaaa", raw=True, max_tokens=12, draft_length=2)
        assert (result.drafter, result.fault) == ("published", None)
        assert result.tokens == model.generate("aaaa", raw=True, max_tokens=12, drafter="none").tokens
        assert result.drafted > 0
        for name in ("model", "mixture"):
            with refused(
                UsageError, f"drafter {name!r} drafts with a model, and the draft is a head: use 'published'"
            ):
                model.check(drafter=name)


def test_a_model_is_no_head(tiny_llama, tmp_path):
    assert published_kind(models.export(tiny_llama, tmp_path / "tiny", "float32")) is None
    assert published_kind(tmp_path / "nowhere") is None
