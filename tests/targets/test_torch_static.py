"""Recorded passes: what a GPU would play again, played again here."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from refusals import refused
from transformers import AutoModelForCausalLM

from fakes import adversarial, plain, run, start
from outpace import profiles
from outpace.decode import generate
from outpace.errors import UsageError
from outpace.registry import DRAFTERS
from outpace.targets import torch_causal, torch_models, torch_static
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_static import CudaGraphs, OnTheDevice, StaticInputs, Unrecordable, recorder_of
from outpace.types import EMPTY, Draft, Prompt, Verdict
from taped import Tape
from tiny_torch import V, causal_model, config, recorded_target, torch_target

PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)
TREE = Draft((9, 8, 7, 6, 5, 4), (-1, -1, 0, 1, 3, 4), (None,) * 6)


@pytest.fixture
def small(monkeypatch):
    """Makes texts of a few dozen tokens outgrow what is looked at, and the buffers."""
    monkeypatch.setattr(torch_static, "LEAST_SLOTS", 16)
    monkeypatch.setattr(torch_static, "CAPACITY", 32)


def tape_of(target):
    return target._static.recorder


def buffers(target):
    return [buffer for pair in target._static._layers.values() for buffer in pair]


def places(target):
    """Returns where the memory is that recordings read and write."""
    inputs = [inputs._held for inputs in target._static._inputs.values()]
    return [one.data_ptr() for one in (*buffers(target), *inputs)]


@pytest.mark.parametrize("drafter", ["ngram", "model", "trees"])
def test_every_pass_of_a_request_is_played(drafter):
    target = recorded_target("llama")
    expected = plain(torch_target("llama"), PROMPT, temperature=1.0, max_tokens=40)
    made = adversarial(V) if drafter == "trees" else DRAFTERS.get(drafter)(target, recorded_target("llama", seed=1))
    before = tape_of(target).played
    one, steps = run(target, PROMPT, made, temperature=1.0, max_tokens=40)
    assert one.committed == expected
    assert tape_of(target).played == before + len(steps)
    if drafter == "model":
        assert tape_of(made.model).played > len(steps)


def test_what_was_recorded_serves_the_next_request_in_the_same_place():
    target = recorded_target("llama")
    for ids in (PROMPT, (4, 3), PROMPT):
        one, _ = run(target, ids, adversarial(V), max_tokens=40)
        one.session.close()
    recorded, there = tape_of(target).recorded, places(target)
    for ids in ((9, 9, 9), PROMPT, (1,)):
        one, _ = run(target, ids, adversarial(V), max_tokens=40)
        one.session.close()
    assert tape_of(target).recorded == recorded <= len(torch_static.ROWS)
    assert places(target) == there


def test_buffers_that_grow_are_recorded_anew(small):
    target, eager = recorded_target("llama"), torch_target("llama")
    expected, there = plain(eager, PROMPT, max_tokens=40, stop=lambda token: None), []
    for _ in range(3):
        before = tape_of(target).played
        one, steps = run(target, PROMPT, DRAFTERS.get("ngram")(target), max_tokens=40, stop=lambda token: None)
        assert one.committed == expected
        assert tape_of(target).played == before + len(steps)
        one.session.close()
        there.append(places(target)[0])
    assert buffers(target)[0].shape[2] > 32
    assert there[0] == there[1] == there[2]  # where the first request's growth had put them


def test_the_buffers_are_one_requests_at_a_time():
    target = recorded_target("qwen3")
    first, _ = target.open(Prompt(PROMPT))
    second, _ = target.open(Prompt((4, 3, 2)))
    assert target._static.owns(first.held)
    assert not target._static.owns(second.held)
    expected = [target.score_many([(session, TREE)])[0].logits for session in (first, second)]
    together = target.score_many([(first, TREE), (second, TREE)])
    for alone, joined in zip(expected, together, strict=True):
        assert np.allclose(alone, joined.logits, atol=1e-4)
    first.close()
    again, _ = target.open(Prompt((8, 8, 8)))  # what the closed one left there is worth less than its place
    assert target._static.owns(again.held)
    assert not target._static.owns(first.held)
    del again
    last, _ = target.open(Prompt((2, 2)))  # nobody has a session that was never closed
    assert target._static.owns(last.held)


def test_a_prompt_that_goes_on_keeps_the_buffers_and_what_is_in_them():
    target = recorded_target("llama")
    text = plain(target, PROMPT, max_tokens=12)
    first, _ = target.open(Prompt(tuple(text)))
    first.close()
    again, _ = target.open(Prompt((*text, 3)))
    assert target._static.owns(again.held)
    assert again.length == len(text)
    eager, _ = torch_target("llama").open(Prompt((*text, 3)))
    expected = eager.target.score_many([(eager, TREE)])[0].logits
    assert np.allclose(target.score_many([(again, TREE)])[0].logits, expected, atol=1e-4)


def test_drafts_of_more_rows_than_are_recorded_run_over_the_same_buffers():
    target, eager = recorded_target("llama"), torch_target("llama")
    draft = Draft.chain([(7 * i) % V for i in range(20)])
    kept = Verdict((0, 1, 2), 5)
    found = []
    for one in (target, eager):
        session, _ = one.open(Prompt(PROMPT))
        rows = [one.score_many([(session, draft)])[0].logits]
        session.commit(draft, kept)
        rows.append(one.score_many([(session, TREE)])[0].logits)
        found.append(np.concatenate(rows))
    assert np.allclose(*found, atol=1e-4)
    assert tape_of(target).played > 0


def test_what_is_no_number_does_not_reach_the_next_request():
    target, eager = recorded_target("llama"), torch_target("llama")
    session, _ = target.open(Prompt(PROMPT))
    target.score_many([(session, TREE)])
    with torch.inference_mode():
        for buffer in buffers(target):
            buffer.fill_(float("nan"))
    session.close()
    assert plain(target, (4, 3), max_tokens=20) == plain(eager, (4, 3), max_tokens=20)


def test_tapped_states_are_recorded_too():
    target, eager = recorded_target("llama"), torch_target("llama")
    found = []
    for one in (target, eager):
        session, _ = one.open(Prompt(PROMPT), (0, 1))
        scores = [one.score_many([(session, draft)])[0] for draft in (TREE, EMPTY, TREE)]
        found.append(np.concatenate([score.hidden for score in scores]))
    assert np.allclose(*found, atol=1e-4)


@pytest.fixture
def reads(monkeypatch):
    """Returns the list of what was read from a device, by the method's name."""
    found = []
    for name in ("cpu", "tolist", "item", "__bool__", "__int__", "__float__", "__index__"):
        true = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda self, *how, true=true, name=name: (found.append(name), true(self, *how))[1]
        )
    return found


@pytest.mark.parametrize("made_by", [recorded_target, torch_target])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("drafter", ["ngram", "trees"])
def test_a_step_has_one_transfer_from_the_device(reads, made_by, rule, drafter):
    target = made_by("llama")
    made = DRAFTERS.get("ngram")(target) if drafter == "ngram" else adversarial(V, legal=True)
    one = start(target, PROMPT, made, rule=rule, temperature=1.0, max_tokens=30)
    reads.clear()
    steps = list(generate(one, target, made))
    assert len(steps) > 5
    assert reads == ["cpu"] * len(steps)


@pytest.mark.parametrize("made_by", [recorded_target, torch_target])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_greedy_guesses_stay_on_the_device_until_all_are_made(reads, made_by, rule):
    target = made_by("llama")
    made = DRAFTERS.get("model")(target, made_by("llama", seed=1))
    one = start(target, PROMPT, made, rule=rule, max_tokens=24, draft_length=4)
    reads.clear()
    steps = list(generate(one, target, made))
    assert one.fault is None
    assert one.committed == plain(torch_target("llama"), PROMPT, max_tokens=24)
    drafted = [step for step in steps if step.drafted]
    assert len(drafted) > 5
    assert reads[: 2 * len(drafted)] == ["tolist", "cpu"] * len(drafted)


@pytest.mark.parametrize("made_by", [recorded_target, torch_target])
def test_a_target_follows_its_own_likeliest_tokens(made_by):
    target, below = made_by("llama"), V // 2
    session, _ = target.open(Prompt(PROMPT))
    other, _ = torch_target("llama").open(Prompt(PROMPT))
    draft = Draft.chain((3, 4))
    expected = []
    for chain in (draft, *[EMPTY] * 3):
        logits = other.target.score_many([(other, chain)])[0].logits[-1]
        expected.append(int(logits[:below].argmax()))
        other.commit(chain, Verdict(tuple(range(len(chain))), expected[-1]))
    assert target.follow(session, draft, 4, below) == expected
    assert (session.length, session.tokens, session.last) == (other.length, other.tokens, other.last)
    after = [one.score_many([(held, TREE)])[0].logits for one, held in ((target, session), (other.target, other))]
    assert np.allclose(*after, atol=1e-4)
    with refused(UsageError, f"token ids must be in [0, {V}), got ({V},)"):
        target.follow(session, Draft.chain((V,)), 2, below)
    taken = session.length + 1
    with refused(UsageError, f"a draft of 60 tokens does not fit: {taken} of 64 positions are taken"):
        target.follow(session, EMPTY, 61, below)


def test_logits_and_states_are_one_transfer(monkeypatch):
    target = torch_target("llama")
    session, _ = target.open(Prompt(PROMPT), (0, 1))
    moved = []
    monkeypatch.setattr(torch_models, "in_numpy", lambda values: moved.append(values.shape) or values.float().numpy())
    scores = target.score_many([(session, TREE)])[0]
    assert moved == [(scores.logits.size + scores.hidden.size,)]


def test_experts_that_wait_for_the_device_stay_eager():
    made = config("mixtral")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(made, experts_implementation="eager").eval()
    target = TorchTarget(model, "mixtral", record=lambda model: Tape())
    assert target.passes == "eager passes: its forward waits for the device (one_hot)"
    assert target._static is None
    assert len(plain(target, PROMPT, max_tokens=8)) == len(PROMPT) + 8


def test_what_python_computes_in_a_forward_is_seen_before_anyone_relies_on_it(monkeypatch):
    def caller(model):
        call = torch_models.caller(model)

        def odd(ids, positions, cache, logits):
            found = call(ids, positions, cache, logits)
            return found.flip(-1) if cache.longest > 40 else found

        return odd

    monkeypatch.setattr(torch_causal, "caller", caller)
    target = TorchTarget(causal_model("llama"), "odd", record=lambda model: Tape())
    assert target.passes == "eager passes: recorded passes score otherwise (off by 5.4)"


def test_a_recording_that_fails_is_tried_once(monkeypatch):
    class Broken(Tape):
        def record(self, one):
            self.recorded += 1
            if self.recorded > 2:
                raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")
            return super().record(one)

    broken = Broken()
    monkeypatch.setattr(torch_static, "LEAST_SLOTS", 16)
    target = TorchTarget(causal_model("llama"), "llama", proved=False, record=lambda model: broken)
    for _ in range(2):
        assert plain(target, PROMPT, max_tokens=40) == plain(torch_target("llama"), PROMPT, max_tokens=40)
    reason = "a tape failed (CUDA error: operation not permitted when stream is capturing)"
    assert target.passes == f"eager passes: {reason}"
    assert target.runs_on == f"cpu float32, eager passes: {reason}"


def test_a_model_with_masks_of_its_own_stays_eager(monkeypatch):
    monkeypatch.setattr(torch_causal, "use_our_masks", lambda model: False)
    target = TorchTarget(causal_model("llama"), "llama", record=lambda model: Tape())
    assert target.passes == "eager passes: it takes no masks of ours"


def test_costs_of_recorded_passes_are_kept_apart():
    target, eager = recorded_target("llama"), torch_target("llama")
    assert target.runs_on == "cpu float32, a tape over a static cache"
    assert eager.runs_on == "cpu float32, eager passes"
    assert profiles.key(target) != profiles.key(eager)


def test_a_recorder_is_for_models_on_one_gpu(monkeypatch):
    def model(*devices):
        weights = [SimpleNamespace(device=torch.device(name)) for name in devices]
        return SimpleNamespace(device=weights[0].device, parameters=lambda: weights)

    assert recorder_of(model("cpu")) is None
    with pytest.raises(Unrecordable, match="its layers are on several devices"):
        recorder_of(model("cuda:0", "cuda:1"))
    monkeypatch.setattr(torch_static, "CudaGraphs", lambda device: device)
    assert recorder_of(model("cuda:1", "cuda:1")) == torch.device("cuda:1")
    monkeypatch.setenv("OUTPACE_CUDA_GRAPHS", "0")
    with pytest.raises(Unrecordable, match="OUTPACE_CUDA_GRAPHS=0"):
        recorder_of(model("cuda:1", "cuda:1"))


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        (lambda x: x.sum().item(), "item|_local_scalar_dense"),
        (lambda x: bool(x.any()), "item|_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda x: x.masked_select(x > 0), "masked_select"),
        (lambda x: x.to("meta"), "_to_copy"),
        (lambda x: torch.empty_like(x, device="meta").copy_(x), "copy_"),
        (lambda x: torch.repeat_interleave(x.long()), "repeat_interleave"),
    ],
)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_what_waits_for_the_device_is_refused(operation, named, mode):
    x = torch.ones(3)
    with mode(), pytest.raises(Unrecordable, match=named), OnTheDevice():
        operation(x)


def test_what_stays_on_the_device_is_allowed():
    x, places = torch.ones(3), torch.tensor([1, 2])
    with torch.inference_mode(), OnTheDevice():
        y = x[places].to(torch.bfloat16).add_(1).float()
        assert x.index_copy(0, places, y).tolist


def test_inputs_hold_a_tree_and_rows_like_the_first():
    inputs = StaticInputs(4, torch.device("cpu"))
    inputs.put(Draft((9, 8), (-1, -1), (None,) * 2), 5, 7)
    assert inputs.length.tolist() == [7]
    assert inputs.ids.tolist() == [[5, 9, 8, 5]]
    assert inputs.rows.tolist() == [[7, 8, 8, 7]]
    assert inputs.own.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    inputs.put(EMPTY, 3, 9)
    assert inputs.ids.tolist() == [[3, 3, 3, 3]]
    assert inputs.own.tolist() == np.eye(4).tolist()


def test_a_graph_is_made_by_pytorchs_steps(monkeypatch):
    said = []

    class Stream:
        def __init__(self, device=None):
            self.device = device

        def wait_stream(self, other):
            said.append(("side" if self is graphs._side else "current", "waits"))

    class Graph:
        def replay(self):
            said.append("replay")

        def pool(self):
            return "the pool"

    @contextlib.contextmanager
    def capture(graph, pool=None, stream=None):
        assert stream is graphs._side
        said.append(("capture", pool))
        yield
        said.append("captured")

    current = Stream()
    fakes = {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": capture,
        "current_stream": lambda: current,
        "device": lambda device: contextlib.nullcontext(),
        "stream": lambda stream: contextlib.nullcontext(),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    graphs = CudaGraphs(torch.device("cuda:1"))
    outputs = torch.ones(1), None
    replay = graphs.record(lambda: said.append("pass") or outputs)
    warm = [("side", "waits"), *["pass"] * torch_static.WARM_UPS, ("current", "waits")]
    assert said == [*warm, ("capture", None), "pass", "captured"]
    said.clear()
    assert replay() is outputs
    assert said == ["replay"]
    graphs.record(lambda: outputs)
    assert ("capture", "the pool") in said
