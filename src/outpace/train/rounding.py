"""Training that knows how its matrices will be stored: gradients at the rounded weights move the exact ones.

A head that was trained at f32 had 0.683 of its first guesses right, 0.666 with matrices of four bits and 0.657 with
output rows of four bits, too. In the last part of a run every step computes with what the file will hold, and its
gradients are taken for those of the exact weights (the straight-through estimate of Bengio et al. 2013, 1308.3432).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from outpace.errors import UsageError
from outpace.heads.config import HeadConfig
from outpace.heads.file import matrix_shapes
from outpace.heads.loading import OUTPUT_FORMAT
from outpace.train.fitting import Fit
from outpace.train.losses import Acceptance

ROUNDED_FROM = 0.5
"""Until this share of a run the head's own matrices are exact; the output rows are rounded from the start."""

_BLOCK = 32


class HeadFit(Fit):
    """The training run of a head whose matrices will be stored in `format`; it is judged by what its file will be."""

    def __init__(self, format: str, *args: Any) -> None:
        super().__init__(*args)
        check_columns(self.network.config)
        self.format = format
        self.matrices = [self.network.get_parameter(name) for name in matrix_shapes(self.network.config)]
        self.head_bf16 = rounded(self.head, OUTPUT_FORMAT).bfloat16()

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"format": self.format}

    def as_used(self) -> AbstractContextManager[None]:
        if self.step < ROUNDED_FROM * self.steps:
            return nullcontext()
        return stored(self.matrices, self.format)

    def evaluate(self, limit: int | None = None) -> Acceptance:
        with stored(self.matrices, self.format):
            return super().evaluate(limit)


def check_columns(config: HeadConfig) -> None:
    """Raises UsageError where a matrix of a head could not be stored, before it is trained."""
    uneven = [f"{name} {cols}" for name, (_, cols) in matrix_shapes(config).items() if cols % _BLOCK]
    if uneven:
        raise UsageError(
            f"a head's matrices are stored in blocks of {_BLOCK} columns, this target's would have "
            f"{', '.join(uneven)}: no head can be trained for it"
        )


def rounded(rows: Tensor, format: str) -> Tensor:
    """Returns rows [R, C] in f32 as `heads.quantise` stores them, Q8_0 or Q4_1; 32 must divide C."""
    blocks = rows.detach().float().reshape(-1, _BLOCK)
    if format == "Q8_0":
        least, most, low = -127, 127, torch.zeros(len(blocks), 1)
        reach = blocks.abs().amax(1, keepdim=True)
    else:
        least, most, low = 0, 15, _half(blocks.amin(1, keepdim=True))
        reach = blocks.amax(1, keepdim=True) - low
    scale = _half(reach / most)
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    codes = ((blocks - low) * inverse).round_().clamp_(least, most)
    return codes.mul_(scale).add_(low).view_as(rows)


def _half(x: Tensor) -> Tensor:
    return x.half().float()


@contextmanager
def stored(matrices: Sequence[torch.nn.Parameter], format: str) -> Iterator[None]:
    """Lets the matrices have the values that their file will hold; afterwards they are exact again."""
    exact = [matrix.detach().clone() for matrix in matrices]
    try:
        with torch.no_grad():
            for matrix in matrices:
                matrix.copy_(rounded(matrix, format))
        yield
    finally:
        with torch.no_grad():
            for matrix, values in zip(matrices, exact, strict=True):
                matrix.copy_(values)
