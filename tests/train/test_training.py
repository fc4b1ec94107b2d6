"""Training of heads, in seconds on a tiny target: it learns, goes on after an interruption, and its head drafts."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

import outpace
from outpace.errors import UsageError
from outpace.heads import tensorfile
from outpace.heads.file import read_head

torch = pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")

from outpace.heads.config import HeadConfig  # noqa: E402
from outpace.heads.quantise import quantise  # noqa: E402
from outpace.native.dequantise import dequantise  # noqa: E402
from outpace.train import losses  # noqa: E402
from outpace.train.batches import Text, collate, read_texts  # noqa: E402
from outpace.train.corpus import Corpora, Corpus  # noqa: E402
from outpace.train.losses import acceptance, aimed_loss, mean_aimed_loss  # noqa: E402
from outpace.train.medusa import FeatureHeads  # noqa: E402
from outpace.train.network import DraftNetwork  # noqa: E402
from outpace.train.rounding import check_columns, rounded, stored  # noqa: E402
from outpace.train.running import Training, train_head  # noqa: E402
from small_heads import KINDS  # noqa: E402

COMMAND = ["outpace", "train"]
QUIET = {"show": lambda done, of, words: None}
TRAINING = Training("eagle", 320, 2, 2.0, 8, 2e-3, 8, None, 0)


pytestmark = pytest.mark.usefixtures("one_thread")


def config(kind, **changes):
    fields = HeadConfig(kind, (0, 1), 32, 4, 2, 8, 48, 100, 100, 3, 1e-5, 1e4, True, "0" * 64)
    return replace(fields, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_sees_only_its_own_past(kind):
    torch.manual_seed(0)
    c = config(kind)
    network = FeatureHeads(c) if kind in ("medusa", "blockwise") else DraftNetwork(c)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    hidden, embedded = torch.randn(1, 12, 2, 32), torch.randn(1, 12, 32)
    with torch.no_grad():
        before = network.steps(hidden, embedded, 3)
        for changed in range(12):
            h, e = hidden.clone(), embedded.clone()
            h[:, changed] += 1
            e[:, changed] += 1
            for step, (a, b) in enumerate(zip(before, network.steps(h, e, 3), strict=True)):
                same = (a == b).all(-1)[0]
                assert same[:changed].all(), f"step {step} sees what comes after"
        # the hidden states after the row where a chain began are unknown to it
        h = hidden.clone()
        h[:, 8:] += 1
        for step, (a, b) in enumerate(zip(before, network.steps(h, embedded, 3), strict=True)):
            assert torch.allclose(a[:, : 8 + step], b[:, : 8 + step], atol=1e-6)


@pytest.mark.parametrize("kind", ["eagle", "parallel"])
def test_leaving_out_the_prompts_rows_changes_nothing_after_them(kind):
    torch.manual_seed(0)
    network = DraftNetwork(config(kind))
    hidden, embedded = torch.randn(2, 12, 2, 32), torch.randn(2, 12, 32)
    with torch.no_grad():
        whole, late = network.steps(hidden, embedded, 3), network.steps(hidden, embedded, 3, begin=5)
    for step, (a, b) in enumerate(zip(whole, late, strict=True)):
        assert torch.allclose(a[:, 5 + step :], b[:, step:], atol=1e-5)


def test_the_loss_is_least_where_the_laws_are_equal():
    log_p = torch.randn(5, 20).log_softmax(-1)
    log_q = log_p.clone().requires_grad_()
    assert torch.allclose(acceptance(log_p, log_q), torch.ones(5), atol=1e-5)
    loss = aimed_loss(log_p, log_q)
    assert torch.allclose(loss, torch.zeros(5), atol=1e-4)
    for _ in range(20):
        other = torch.randn(5, 20).log_softmax(-1)
        assert (aimed_loss(log_p, other) > 0).all()
        variation = 0.5 * (log_p.exp() - other.exp()).abs().sum(-1)
        assert torch.allclose(acceptance(log_p, other), 1 - variation, atol=1e-5)


def unsummed_laws(rows, tokens, dtype):
    """Returns log p [rows, tokens] that sums to less than 1, as a law does over a part of its tokens."""
    return (torch.randn(rows, tokens, dtype=dtype) * 2).log_softmax(-1) - torch.rand(rows, 1, dtype=dtype)


def test_the_slopes_of_the_loss_are_its_gradient():
    torch.manual_seed(0)
    log_p, logits = unsummed_laws(50, 30, torch.float64), torch.randn(50, 30, dtype=torch.float64)
    leaf = logits.clone().requires_grad_()
    expected = aimed_loss(log_p, leaf.log_softmax(-1))
    expected.sum().backward()
    found, slopes = losses._losses_and_slopes(log_p, logits)
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(slopes, leaf.grad)


def test_the_loss_of_a_few_rows_at_a_time_is_that_of_all(monkeypatch):
    torch.manual_seed(0)
    head, log_p = torch.randn(40, 16).bfloat16(), unsummed_laws(50, 40, torch.float32)
    outputs = torch.randn(50, 16)
    with_graph, ours = outputs.clone().requires_grad_(), outputs.clone().requires_grad_()
    expected = aimed_loss(log_p, (with_graph.bfloat16() @ head.T).float().log_softmax(-1)).mean()
    expected.backward()
    monkeypatch.setattr(losses, "_CHUNK", 40 * 7)  # seven rows, and one left
    found = mean_aimed_loss(ours, head, lambda rows: log_p[rows])
    (3 * found).backward()
    torch.testing.assert_close(found, expected.detach())
    error = (ours.grad - 3 * with_graph.grad).norm() / (3 * with_graph.grad).norm()
    assert error < 0.01  # both round to bf16, eight bits, on the way


@pytest.mark.parametrize("format", ["Q8_0", "Q4_1"])
def test_rounded_weights_are_what_the_file_holds(format):
    torch.manual_seed(0)
    rows = torch.randn(6, 64) * torch.tensor([1e-3, 1.0, 30.0, 0.0, 1.0, 1.0])[:, None]
    rows[4] = rows[4].abs() + 2  # no block of one sign
    held = dequantise(quantise(rows.numpy(), format), format, 6, 64)
    np.testing.assert_array_equal(rounded(rows, format).numpy(), held)


def test_a_head_that_cannot_be_stored_is_refused_before_it_is_trained():
    check_columns(config("eagle", ffn_size=64))
    with pytest.raises(UsageError) as told:
        check_columns(config("medusa", hidden_size=48))
    assert str(told.value) == (
        "a head's matrices are stored in blocks of 32 columns, this target's would have guess_0 48, guess_1 48, "
        "guess_2 48: no head can be trained for it"
    )


def test_a_step_at_the_stored_weights_leaves_the_exact_ones():
    matrix = torch.nn.Parameter(torch.randn(4, 32))
    exact = matrix.detach().clone()
    with stored([matrix], "Q4_1"):
        torch.testing.assert_close(matrix.detach(), rounded(exact, "Q4_1"), rtol=0, atol=0)
        matrix.square().sum().backward()
    assert torch.equal(matrix.detach(), exact)
    torch.testing.assert_close(matrix.grad, 2 * rounded(exact, "Q4_1"))


def test_rows_count_where_an_answer_was_drafted_and_its_law_is_known():
    def text(prompt, length):
        return Text(
            np.arange(length, dtype=np.int32),
            np.ones((length, 2, 4), np.float16),
            np.ones(length, np.float32),
            prompt,
            True,
        )

    batch = collate([text(4, 9), text(6, 12)])
    assert batch.begin == 3
    rows = torch.arange(batch.begin, 12)
    # row t proposes token t + 2, after token t + 1 has been drawn; the law of token t + 2 needs row t + 1
    assert rows[batch.counts(0)[0]].tolist() == [3, 4, 5, 6]
    assert rows[batch.counts(0)[1]].tolist() == [5, 6, 7, 8, 9]
    assert rows[batch.counts(2)[0]].tolist() == [5, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_its_head_drafts(tiny_llama, corpus, tmp_path, monkeypatch, kind):
    out = tmp_path / "head.safetensors"
    card = train_head(str(tiny_llama), None, [corpus], out, replace(TRAINING, kind=kind), COMMAND, **QUIET)
    chance = 1 / 320
    assert card["held_out"]["greedy"][0] > 20 * chance
    assert card["steps"] == card["steps_planned"]
    assert not out.with_suffix(".checkpoint").exists()
    assert json.loads(out.with_suffix(".json").read_text())["command"] == COMMAND
    assert read_head(out).card["held_out"] == card["held_out"]
    monkeypatch.setenv("OUTPACE_HEADS", str(out))
    with outpace.load(tiny_llama, threads=1) as model:
        how = {"max_tokens": 40, "ignore_eos": True}
        drafted = model.generate("Tell me of 5.", drafter=kind, draft_length=3, **how)
        assert drafted.fault is None
        assert drafted.tokens == model.generate("Tell me of 5.", drafter="none", **how).tokens
        assert sum(step.accepted for step in drafted.steps) > 0


def test_an_interrupted_run_ends_as_an_uninterrupted_one(monkeypatch, tiny_llama, corpus, tmp_path):
    from outpace.train.fitting import Fit

    evaluate_every = Fit.run.__kwdefaults__["evaluate_every"]
    monkeypatch.setitem(Fit.run.__kwdefaults__, "evaluate_every", 3)
    assert evaluate_every == 100
    training = replace(TRAINING, epochs=1.0)

    def cut(done, of, words):
        if done == 5:
            raise KeyboardInterrupt

    heads = []
    for name in ("whole", "pieces"):
        out = tmp_path / f"{name}.safetensors"
        if name == "pieces":
            with pytest.raises(KeyboardInterrupt):
                train_head(str(tiny_llama), None, [corpus], out, training, COMMAND, cut)
            assert out.with_suffix(".checkpoint").exists()
            assert not out.exists()
            for other in ({"rate": 1e-3}, {"bits": 12 - training.bits}):
                with pytest.raises(UsageError, match="other settings"):
                    train_head(str(tiny_llama), None, [corpus], out, replace(training, **other), COMMAND, **QUIET)
            with monkeypatch.context() as patch:
                patch.setattr(Corpora, "content_hash", lambda self: "of other texts")
                with pytest.raises(UsageError, match="other settings or texts"):
                    train_head(str(tiny_llama), None, [corpus], out, training, COMMAND, **QUIET)
        train_head(str(tiny_llama), None, [corpus], out, training, COMMAND, **QUIET)
        heads.append(read_head(out))
    for name, (_, blocks) in heads[0].matrices.items():
        assert np.array_equal(blocks, heads[1].matrices[name][1])
    assert heads[0].card["held_out"] == heads[1].card["held_out"]


def test_what_cannot_be_trained_is_refused(tiny_llama, corpus, tmp_path):
    out = tmp_path / "head.safetensors"
    for change, words in (
        ({"block": 0}, "block must be in"),
        ({"epochs": -1.0}, "epochs must be positive"),
        ({"rate": math.inf}, "rate must be positive"),
        ({"draft_vocab": 321}, "1 to 320 tokens"),
    ):
        with pytest.raises(UsageError, match=words):
            train_head(str(tiny_llama), None, [corpus], out, replace(TRAINING, **change), COMMAND, **QUIET)
    with pytest.raises(UsageError, match="no corpus here"):
        train_head(str(tiny_llama), None, [tmp_path], out, TRAINING, COMMAND, **QUIET)
    with pytest.raises(UsageError, match="a folder with a corpus, got none"):
        train_head(str(tiny_llama), None, [], out, TRAINING, COMMAND, **QUIET)


def test_a_corpus_of_another_target_is_refused_before_anything_is_trained(tiny_llama, corpus, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    described = json.loads((moved / "corpus.json").read_text())
    described["recipe"]["target"] = "0" * 64
    (moved / "corpus.json").write_text(json.dumps(described))
    with refused(UsageError, f"{moved} was written by another model than {tiny_llama.name}: name that with --model"):
        train_head(str(tiny_llama), None, [moved], tmp_path / "h.safetensors", TRAINING, COMMAND, **QUIET)


def test_a_checkpoint_that_is_damaged_is_named(tiny_llama, corpus, tmp_path):
    out = tmp_path / "head.safetensors"
    short = replace(TRAINING, minutes=1e-6)
    train_head(str(tiny_llama), None, [corpus], out, short, COMMAND, **QUIET)
    checkpoint = out.with_suffix(".checkpoint")
    whole = checkpoint.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no checkpoint at all", whole[:100] + b"x" * 100):
        checkpoint.write_bytes(damaged)
        with refused(UsageError, f"{checkpoint} is not a whole checkpoint: remove it to start again"):
            train_head(str(tiny_llama), None, [corpus], out, short, COMMAND, **QUIET)


def test_a_head_of_another_shape_is_no_start(tiny_llama, corpus, tmp_path):
    first = tmp_path / "medusa.safetensors"
    medusa = replace(TRAINING, kind="medusa", minutes=1e-6)
    train_head(str(tiny_llama), None, [corpus], first, medusa, COMMAND, **QUIET)
    for change, asked in (({"kind": "blockwise"}, "blockwise, 2"), ({"block": 3}, "medusa, 3")):
        line = f"{first} is a head of another shape: kind medusa, block 2 there, {asked} asked for"
        with refused(UsageError, line):
            train_head(
                str(tiny_llama), None, [corpus], tmp_path / "h.safetensors",
                replace(medusa, start=first, **change), COMMAND, **QUIET,
            )  # fmt: skip


def test_corpora_of_one_target_are_read_as_one(corpus, tmp_path):
    twice = Corpora([corpus, corpus])
    once = Corpora([corpus])
    assert twice.shards() == 2 * once.shards()
    assert (twice.target, twice.taps) == (once.target, once.taps)
    assert [len(texts) for texts in read_texts(twice)] == [2 * len(texts) for texts in read_texts(once)]
    assert len({twice.content_hash(), once.content_hash(), Corpus(corpus).content_hash()}) == 2
    for name, other in (("target", "another"), ("taps", [0])):
        folder = tmp_path / name
        folder.mkdir()
        described = json.loads((corpus / "corpus.json").read_text())
        described["recipe"][name] = other
        (folder / "corpus.json").write_text(json.dumps(described))
        with refused(
            UsageError,
            f"{folder} cannot be joined to {corpus}: {name} {other} there, {Corpus(corpus).recipe[name]} here",
        ):
            Corpora([corpus, folder])


def test_held_out_texts_are_never_trained_on(corpus, tmp_path):
    # The same prompts again, in another order: what is held out there is not what is held out here.
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    for path in Corpus(moved).shards():
        held = tensorfile.read(path)
        arrays = {name: array.copy() for name, array in held.arrays.items()}
        arrays["indices"] += 1
        tensorfile.write(path, arrays, held.metadata)
    for folders in ([corpus], [corpus, moved]):
        training, held_out = read_texts(Corpora(folders))
        seen = {tuple(text.tokens[: text.prompt]) for text in training}
        assert held_out
        assert not any(tuple(text.tokens[: text.prompt]) in seen for text in held_out)
