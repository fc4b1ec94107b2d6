"""Linear layers of a model on the CPU whose weights lie as oneDNN multiplies them.

PyTorch keeps weights in rows, and its CPU kernels bring them into blocks anew in every pass: with a few rows that
takes longer than the products do. Packed once, such products take about half as long. Values are the same ones.
Layers that multiply the same input become one product: in a small model each call costs as much as what it computes.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import torch

ROWS = 8
"""Rows that weights are packed for: passes of drafts have one to sixteen."""

ALIKE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that have the same input in every decoder that uses them. One that is called with an input of its
own is right all the same, at more cost."""


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


class Joined:
    """Several linear layers of one input as one product, whose parts each layer takes.

    The product is kept until every layer has taken its part, and no longer; one that asks again has it made anew.
    """

    def __init__(self, linears: Sequence[torch.nn.Linear]) -> None:
        first = linears[0]
        whole = torch.nn.Linear(
            first.in_features, sum(linear.out_features for linear in linears), first.bias is not None, device="meta"
        )
        whole.weight = torch.nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), False)
        if first.bias is not None:
            whole.bias = torch.nn.Parameter(torch.cat([linear.bias.detach() for linear in linears]), False)
        self.product = PackedLinear(whole)
        self._all = (1 << len(linears)) - 1
        self._made: tuple[torch.Tensor, torch.Tensor, int] | None = None  # input, product, who has taken a part

    def __call__(self, x: torch.Tensor, part: int) -> torch.Tensor:
        """Returns [..., outputs of all layers] for the layer of that number."""
        mine, made = 1 << part, self._made
        if made is not None and made[0] is x and not made[2] & mine:
            _, y, taken = made
        else:
            y, taken = self.product(x), 0
        taken |= mine
        self._made = None if taken == self._all else (x, y, taken)
        return y


class PackedPart(torch.nn.Module):  # type: ignore[misc]
    """A layer that was joined with others. whole: their product. part: its number. start: of its outputs there."""

    def __init__(self, joined: Joined, part: int, start: int, size: int) -> None:
        super().__init__()
        self.in_features, self.out_features = joined.product.in_features, size
        self.whole = joined.product
        self._joined, self._part, self._start = joined, part, start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [..., outputs]."""
        return self._joined(x, self._part).narrow(-1, self._start, self.out_features)


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

    Those that are ALIKE share one, in decoders without an encoder: across it, keys and values have another input.
    Layers of other classes (quantised ones, experts, convolutions) stay as they are. A head that shares the
    embedding's weight gets a copy, since the embedding is read by rows.
    """
    joined = 0 if model.config.is_encoder_decoder else sum(_join(parent) for parent in model.modules())
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
    return joined + len(made)


def _join(parent: torch.nn.Module) -> int:
    """Returns how many layers of one module were replaced by parts of a product."""
    count = 0
    for names in ALIKE:
        linears = [parent._modules.get(name) for name in names]
        if not all(type(linear) is torch.nn.Linear and packs(linear.weight.dtype) for linear in linears):
            continue
        if len({(linear.weight.dtype, linear.in_features, linear.bias is None) for linear in linears}) > 1:
            continue
        whole, start = Joined(linears), 0
        for part, (name, linear) in enumerate(zip(names, linears, strict=True)):
            setattr(parent, name, PackedPart(whole, part, start, linear.out_features))
            start += linear.out_features
        count += len(names)
    return count


def dense(weight: torch.Tensor) -> torch.Tensor:
    """Returns the weight as rows, packed or not."""
    return weight.to_dense() if weight.is_mkldnn else weight
