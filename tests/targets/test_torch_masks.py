"""Attention under our name computes what transformers' own does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402

from outpace.targets.torch_masks import sdpa_attention  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", ["no mask", "one mask", "a mask for each head"])
@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (1, 5), (2, 3), (2, 1)])
@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (4, 4)])
def test_attention_is_transformers_own(dtype, masked, batch, rows, heads, shared):
    torch.manual_seed(0)
    module = SimpleNamespace(num_key_value_groups=heads // shared, is_causal=True)
    query = torch.randn(batch, rows, heads, 16, dtype=dtype).transpose(1, 2)
    slots = 9 if masked != "no mask" or rows == 1 else rows  # without a mask, rows are a prompt's first ones
    key, value = (torch.randn(batch, shared, 12, 16, dtype=dtype).narrow(2, 0, slots) for _ in range(2))
    mask = None
    if masked != "no mask":
        mask = torch.rand(batch, heads if "each" in masked else 1, rows, slots) < 0.7
        mask[..., 0] = True
    with torch.inference_mode():
        ours, _ = sdpa_attention(module, query, key, value, mask, scaling=0.2)
        theirs, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.2)
    assert ours.shape == theirs.shape == (batch, rows, heads, 16)
    assert ours.is_contiguous()
    assert torch.allclose(ours, theirs, atol=1e-2 if dtype == torch.bfloat16 else 1e-6)
