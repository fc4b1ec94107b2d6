"""Healing of a cut-down draft, in seconds: it computes what the engine does, learns, goes on, and its file drafts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import outpace
from gguf_writer import Tiny, tiny_model
from outpace.errors import UsageError
from outpace.models.making import make_draft
from outpace.native.loading import load_native
from outpace.types import Draft, Prompt

torch = pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")

from outpace.train.decoder import Decoder  # noqa: E402
from outpace.train.running import Healing, heal_draft  # noqa: E402

COMMAND = ["outpace", "train", "distill"]
QUIET = {"show": lambda done, of, words: None}
HEALING = Healing(epochs=16.0, batch=8, rate=3e-3, minutes=None, seed=0)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def cut(tiny_llama, tmp_path_factory):
    """One layer of the target's two, at four bits, with 200 of its tokens."""
    out = tmp_path_factory.mktemp("cut") / "cut.gguf"
    make_draft(str(tiny_llama), str(tiny_llama), out, tokens=200, layers=[0])
    return out


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_the_network_computes_what_the_engine_does(tmp_path, architecture):
    path = tiny_model(tmp_path / "model.gguf", Tiny(architecture, tied=architecture == "llama"))
    ids = tuple(np.random.default_rng(0).integers(0, 320, 20).tolist())
    target = load_native(path, threads=1)
    session, _ = target.open(Prompt(ids[:1]))
    expected = target.score_many([(session, Draft.chain(ids[1:]))])[0].logits
    network = Decoder(path)
    with torch.no_grad():
        found = (network(torch.tensor([ids]))[0] @ network.output.T).numpy()
    assert np.abs(found - expected).max() < 0.005 * np.abs(expected).max()


def test_a_healed_draft_is_right_more_often_and_drafts(tmp_path, tiny_llama, corpus, cut):
    out = tmp_path / "healed.gguf"
    card = heal_draft(str(tiny_llama), str(cut), 1, [corpus], out, HEALING, COMMAND, **QUIET)
    before, after = card["held_out_before"]["greedy"][0], card["held_out"]["greedy"][0]
    assert after > before + 0.1  # of 61 places
    assert card["held_out"]["sampled_overlap"][0] > card["held_out_before"]["sampled_overlap"][0] + 0.09
    record = json.loads(out.with_suffix(".json").read_text())
    assert (record["command"], record["seed"], record["steps"]) == (COMMAND, 0, record["steps_planned"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["healed.gguf", "healed.json"]
    shares = []
    for draft in (cut, out):
        model = outpace.load(tiny_llama, draft=draft, threads=1)
        results = [
            model.generate(f"Tell me of {n}.", max_tokens=40, drafter="model", draft_length=2) for n in range(4)
        ]
        for n, result in enumerate(results):
            assert result.tokens == model.generate(f"Tell me of {n}.", max_tokens=40, drafter="none").tokens
        shares.append(sum(result.accepted for result in results))
    assert shares[1] > shares[0]


def test_an_interrupted_run_goes_on_and_ends_as_a_whole_one(tmp_path, tiny_llama, corpus, cut):
    short = Healing(epochs=1.0, batch=16, rate=1e-3, minutes=None, seed=1)
    whole, parts = tmp_path / "whole.gguf", tmp_path / "parts.gguf"
    heal_draft(str(tiny_llama), str(cut), 1, [corpus], whole, short, COMMAND, **QUIET)

    class Interrupted(Exception):
        pass

    def interrupt(done, of, words):
        if done == 3:
            raise Interrupted

    from outpace.train.fitting import Fit

    with pytest.MonkeyPatch.context() as patch:
        real = Fit.run
        patch.setattr(Fit, "run", lambda self, show, **how: real(self, show, **(how | {"evaluate_every": 2})))
        with pytest.raises(Interrupted):
            heal_draft(str(tiny_llama), str(cut), 1, [corpus], parts, short, COMMAND, interrupt)
    assert not parts.exists()
    other = Healing(epochs=2.0, batch=16, rate=1e-3, minutes=None, seed=1)
    with pytest.raises(UsageError, match="belongs to a run with other settings"):
        heal_draft(str(tiny_llama), str(cut), 1, [corpus], parts, other, COMMAND, **QUIET)
    heal_draft(str(tiny_llama), str(cut), 1, [corpus], parts, short, COMMAND, **QUIET)
    assert parts.read_bytes() == whole.read_bytes()


def test_what_cannot_be_healed_is_said(tmp_path, tiny_llama, corpus, cut):
    gemma = tiny_model(tmp_path / "gemma.gguf", Tiny("gemma3"))
    cases = [
        (gemma, "healed.gguf", UsageError, "can be healed, got"),
        (cut, "healed.bin", UsageError, "a draft is a GGUF file, before and after"),
    ]
    for draft, name, error, words in cases:
        with pytest.raises(error, match=words):
            heal_draft(str(tiny_llama), str(draft), 1, [corpus], tmp_path / name, HEALING, COMMAND, **QUIET)
