"""Packed linear layers compute what they did, and hold the same values."""

from __future__ import annotations

import copy
import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from fakes import plain  # noqa: E402
from outpace import profiles  # noqa: E402
from outpace.targets import torch_packing  # noqa: E402
from outpace.targets.torch_causal import TorchTarget  # noqa: E402
from outpace.targets.torch_models import weight_bytes  # noqa: E402
from outpace.targets.torch_packing import PackedLinear, dense, pack, packs  # noqa: E402
from outpace.targets.torch_seq2seq import TorchSeq2Seq  # noqa: E402
from tiny_torch import CAUSAL, SEQ2SEQ, causal_model, seq2seq_model, torch_target  # noqa: E402

pytestmark = pytest.mark.skipif(not packs(torch.float32), reason="weights are packed on x86 processors with oneDNN")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5), (64, 32), (33, 576)])
def test_a_packed_layer_computes_what_the_layer_did(shape, dtype):
    if not packs(dtype):
        pytest.skip(f"no {dtype} here")
    torch.manual_seed(0)
    linear = torch.nn.Linear(shape[1], shape[0], dtype=dtype)
    packed = PackedLinear(linear)
    assert torch.equal(dense(packed.weight), linear.weight)
    for rows in (1, 2, 5, 17):
        x = torch.randn(1, rows, shape[1], dtype=dtype)
        with torch.inference_mode():
            assert torch.allclose(packed(x), linear(x), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_packed_model_writes_the_same_text(name):
    model = copy.deepcopy(causal_model(name))
    before = weight_bytes(model)
    assert (pack(model) > 0) or name == "gpt2"  # whose layers are of a class of its own
    assert weight_bytes(model) == before
    packed = TorchTarget(model, name)
    assert plain(packed, (5, 6, 7, 5), max_tokens=16) == plain(torch_target(name), (5, 6, 7, 5), max_tokens=16)


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_a_packed_encoder_is_still_known_as_equal(name):
    model = copy.deepcopy(seq2seq_model(name))
    assert pack(model) > 0
    target, whole = TorchSeq2Seq(model, name), TorchSeq2Seq(seq2seq_model(name), name)
    encoded = whole.encode(whole.sample((5, 6, 7)).source)
    assert target.takes_encoded(encoded)


def test_layers_of_other_classes_stay():
    class Quantised(torch.nn.Linear):
        pass

    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, Quantised(4, 4), shared)
    model.config = SimpleNamespace(is_encoder_decoder=False)
    assert pack(model) == 1
    assert model[0] is model[2]
    assert type(model[1]) is Quantised


class Gated(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.gate_proj, self.up_proj = torch.nn.Linear(8, 5, bias), torch.nn.Linear(8, 3, bias)
        self.config = SimpleNamespace(is_encoder_decoder=False)


@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_one_input_share_a_product_and_each_gets_its_own_part(bias):
    torch.manual_seed(0)
    apart = Gated(bias)
    together = copy.deepcopy(apart)
    assert pack(together) == 2
    assert together.gate_proj.whole is together.up_proj.whole
    x, other = torch.randn(1, 4, 8), torch.randn(1, 4, 8)
    with torch.inference_mode():
        for inputs in ((x, x), (x, other), (other, x), (x, x)):  # also where they do not have the same input
            for ours, theirs, given in zip(
                (together.gate_proj, together.up_proj), (apart.gate_proj, apart.up_proj), inputs, strict=True
            ):
                assert torch.allclose(ours(given), theirs(given), atol=1e-5)
        together.gate_proj(x)
        x *= 2
        assert torch.allclose(together.gate_proj(x), apart.gate_proj(x), atol=1e-5)


def test_a_shared_product_is_not_kept_after_its_last_part():
    model = Gated(False)
    pack(model)
    x = torch.randn(1, 2, 8)
    kept = weakref.ref(x)
    model.gate_proj(x), model.up_proj(x)
    del x
    assert kept() is None


def test_costs_of_packed_weights_are_kept_apart():
    model = copy.deepcopy(causal_model("llama"))
    pack(model)
    assert profiles.key(TorchTarget(model, "llama")) != profiles.key(torch_target("llama"))


def test_half_precision_that_onednn_lacks_is_left_alone(monkeypatch):
    assert not packs(torch.float16)
    monkeypatch.setattr(torch_packing.platform, "machine", lambda: "aarch64")
    assert not packs(torch.float32)
