"""Linear layers of a model on the CPU whose weights lie as oneDNN multiplies them.

PyTorch keeps weights in rows, and its CPU kernels bring them into blocks anew in every pass: with a few rows that
takes longer than the products do. Packed once, such products take about half as long. Values are the same ones.
"""

from __future__ import annotations

import platform
from typing import Any

import torch

ROWS = 8
"""Rows that weights are packed for: passes of drafts have one to sixteen."""


class PackedLinear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer for inference. weight: [outputs, inputs], in blocks that only oneDNN reads."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self.weight = torch.nn.Parameter(packed, requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [..., outputs]."""
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


def packs(dtype: torch.dtype) -> bool:
    """Whether weights of this type are packed here: on an x86 processor, in float32 or bfloat16, with oneDNN."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not torch.backends.mkldnn.is_available():
        return False
    ours = torch.ops.mkldnn
    if not (hasattr(ours, "_reorder_linear_weight") and hasattr(ours, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(ours._is_mkldnn_bf16_supported()))


def pack(model: Any) -> int:
    """Returns how many linear layers of the model were replaced by packed ones; each takes its weight's place.

    Layers of other classes (quantised ones, experts, convolutions) stay as they are. A head that shares the
    embedding's weight gets a copy, since the embedding is read by rows.
    """
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if type(child) is torch.nn.Linear and packs(child.weight.dtype)
    ]
    made: dict[int, PackedLinear] = {}
    while layers:  # one by one, so that at most one weight is there twice
        parent, name, linear = layers.pop()
        if id(linear) not in made:
            made[id(linear)] = PackedLinear(linear)
        setattr(parent, name, made[id(linear)])
    return len(made)


def dense(weight: torch.Tensor) -> torch.Tensor:
    """Returns the weight as rows, packed or not."""
    return weight.to_dense() if weight.is_mkldnn else weight
