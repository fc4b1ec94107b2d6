"""Heads as others publish them: both layouts load, compute what the papers say, and change no text."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

import outpace
from fakes import TableTarget, plain, run
from outpace import models
from outpace.errors import BadModelFile, Unsupported, UsageError, VocabularyMismatch
from outpace.heads import published_layers
from outpace.heads.published import published_head, published_kind
from outpace.heads.published_file import read_published
from outpace.registry import DRAFTERS
from outpace.targets.torch_causal import TorchTarget
from outpace.types import Draft, Prompt
from tiny_torch import V, config

H, FFN, LAYERS, DRAFT_V = 32, 64, 8, 40
PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)
LAYER = {
    "hidden_size": H, "intermediate_size": FFN, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 1, "vocab_size": V, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 128, "rope_theta": 10000.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def target():
    made = config("llama")
    made.num_hidden_layers = LAYERS
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return TorchTarget(AutoModelForCausalLM.from_config(made, dtype=torch.float32).eval(), "llama")


def weights(prefix, reads=H, seed=1):
    torch.manual_seed(seed)
    shapes = {
        "self_attn.q_proj": (H, reads), "self_attn.k_proj": (H // 2, reads), "self_attn.v_proj": (H // 2, reads),
        "self_attn.o_proj": (H, H), "mlp.gate_proj": (FFN, H), "mlp.up_proj": (FFN, H), "mlp.down_proj": (H, FFN),
        "post_attention_layernorm": (H,),
    }  # fmt: skip
    return {f"{prefix}{name}.weight": torch.randn(shape) * 0.3 for name, shape in shapes.items()}


def eagle3(prefix):
    more = {"hidden_norm": (H,), "input_layernorm": (H,)}
    offsets = torch.arange(DRAFT_V) % 2 + torch.arange(DRAFT_V)  # row i proposes token 2 i, or one more
    return (
        weights(prefix, 2 * H)
        | {f"{prefix}{name}.weight": torch.rand(shape) + 0.5 for name, shape in more.items()}
        | {"fc.weight": torch.randn(H, 3 * H) * 0.2, "norm.weight": torch.rand(H) + 0.5}
        | {"lm_head.weight": torch.randn(DRAFT_V, H), "d2t": offsets, "t2d": torch.zeros(V, dtype=torch.bool)}
    )


def medusa():
    torch.manual_seed(2)
    found = {}
    for one in range(3):
        found |= {f"{one}.0.linear.weight": torch.randn(H, H) * 0.3, f"{one}.0.linear.bias": torch.randn(H)}
        found |= {f"{one}.1.weight": torch.randn(V, H)}
    return found


PUBLISHED = {
    "eagle by its authors": (
        LAYER,
        "pytorch_model.bin",
        weights("layers.0.")
        | {"fc.weight": torch.randn(H, 2 * H) * 0.2, "fc.bias": torch.randn(H)}
        | {"embed_tokens.weight": torch.randn(V, H)},
    ),
    "eagle of speculators": (
        {"speculators_model_type": "eagle", "transformer_layer_config": LAYER, "fusion_bias": False},
        "model.safetensors",
        weights("transformer.") | {"fusion_fc.weight": torch.randn(H, 2 * H) * 0.2},
    ),
    "eagle-3 by its authors": (LAYER | {"draft_vocab_size": DRAFT_V}, "pytorch_model.bin", eagle3("midlayer.")),
    "eagle-3 of speculators": (
        {
            "speculators_model_type": "eagle3", "transformer_layer_config": LAYER, "draft_vocab_size": DRAFT_V,
            "norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [1, 4, 7],
        },
        "model.safetensors",
        eagle3("layers.0."),
    ),
    "medusa by its authors": ({"medusa_num_heads": 3, "medusa_num_layers": 1}, "medusa_lm_head.pt", medusa()),
}  # fmt: skip


def write(folder, described, file, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(described))
    if file.endswith(".safetensors"):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file)
    else:
        torch.save(tensors, folder / file)
    return folder


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
            with pytest.raises(UsageError, match="the draft is a head: use 'published'"):
                model.check(drafter=name)


def test_a_model_is_no_head(tiny_llama, tmp_path):
    assert published_kind(models.export(tiny_llama, tmp_path / "tiny", "float32")) is None
    assert published_kind(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("eagle of speculators", {"speculators_model_type": "mlp"}, Unsupported, "a head of kind 'mlp'"),
        ("eagle of speculators", {"layernorms": True}, Unsupported, "further norms"),
        ("eagle-3 of speculators", {"eagle_aux_hidden_state_layer_ids": [0]}, BadModelFile, "layers from 1"),
        ("eagle-3 of speculators", {"eagle_aux_hidden_state_layer_ids": [3, 99]}, VocabularyMismatch, "reads"),
        ("eagle by its authors", {"hidden_size": -1}, BadModelFile, "hidden_size must be in"),
        ("eagle by its authors", {"intermediate_size": 128}, BadModelFile, r"gate_proj\.weight must be \[128, 32\]"),
        ("medusa by its authors", {"medusa_num_heads": 4}, BadModelFile, r"3\.1\.weight"),
        ("medusa by its authors", {"medusa_num_heads": 10**9}, BadModelFile, "medusa_num_heads must be in"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_sentence(target, tmp_path, name, change, error, message):
    described, file, tensors = PUBLISHED[name]
    folder = write(tmp_path / "h", described | change, file, tensors)
    with pytest.raises(error, match=message):
        published_head(folder, target)


def test_files_that_hold_more_than_tensors_are_not_run(target, tmp_path):
    class Trap:
        def __reduce__(self):
            return (print, ("run",))

    folder = write(tmp_path / "h", PUBLISHED["medusa by its authors"][0], "medusa_lm_head.pt", {"0": Trap()})
    with pytest.raises(BadModelFile, match="cannot be read as tensors"):
        published_head(folder, target)
    (folder / "medusa_lm_head.pt").write_bytes(b"\0" * 64)
    with pytest.raises(BadModelFile, match="cannot be read as tensors"):
        published_head(folder, target)


def test_other_targets_are_refused(target, tmp_path, tiny_llama):
    folder = write(tmp_path / "h", *PUBLISHED["medusa by its authors"])
    with pytest.raises(UsageError, match="beside a causal model of engine 'torch'"):
        published_layers.run_on(read_published(folder), TableTarget())
    wide = copy.copy(target)
    wide.hidden_size = 64
    with pytest.raises(VocabularyMismatch, match="hidden states of 32, llama has 64"):
        published_head(folder, wide)
    with pytest.raises(UsageError, match="needs the folder of an EAGLE or Medusa head"):
        DRAFTERS.get("published")(target, None)
