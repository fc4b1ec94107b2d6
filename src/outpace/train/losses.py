"""What training makes small, and what it is measured by.

A drafted token is accepted with probability sum over v of min(p, q) = 1 - TV(p, q), so the loss aims at that:

    loss = KL(p, q) - log(sum of min(p, q))

KL alone gives probability to what p holds likely and has gradients from the start; the second term stops paying for
tokens that the draft cannot win (as the total-variation losses of the literature do; its logarithm weighs rows where
little is accepted yet). Both are over the draft vocabulary; p's mass outside of it cannot be won and stays out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_TINY = 1e-6

_CHUNK = 3 << 19
"""Numbers of a law that are worked on at once: 6 MB of f32, which the third-level cache holds."""


def acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Returns [...] the sum of min(p, q) over the last axis."""
    return torch.minimum(log_p.exp(), log_q.exp()).sum(-1)


def aimed_loss(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Returns [...] KL(p, q) - log(sum of min(p, q)) of laws [..., D]; p may sum to less than 1."""
    p = log_p.exp()
    kl = (p * (log_p - log_q)).sum(-1)
    return kl - torch.log(torch.minimum(p, log_q.exp()).sum(-1) + _TINY)


def mean_aimed_loss(outputs: Tensor, head: Tensor, targets: Callable[[slice], Tensor]) -> Tensor:
    """Returns the mean over rows of `aimed_loss`, with the gradient for `outputs`, a few rows at a time.

    outputs [N, H], N > 0: the network's; head [D, H] bf16: the draft vocabulary's output rows; targets: log p [n, D]
    of the rows in a slice. Laws of all rows at once (23 MB for 1,900 rows of 3,072 tokens) would go to memory and
    back for each of some twenty operations; here they stay in the cache, and the gradient for the logits z is

        d loss / dz = q sum(p) - p - q (m - sum(m q)) / sum(min(p, q)), where m is 1 for q < p and else 0
    """
    loss: Tensor = _MeanAimedLoss.apply(outputs, head, targets)
    return loss


class _MeanAimedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, head: Tensor, targets: Callable[[slice], Tensor]) -> Tensor:
        gradient = torch.empty_like(outputs)
        total = torch.zeros((), dtype=torch.float64)
        step = max(1, _CHUNK // len(head))
        for first in range(0, len(outputs), step):
            rows = slice(first, first + step)
            losses, slopes = _losses_and_slopes(targets(rows), (outputs[rows].bfloat16() @ head.T).float())
            total += losses.sum()
            gradient[rows] = slopes.bfloat16() @ head
        ctx.save_for_backward(gradient / len(outputs))
        return (total / len(outputs)).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        [gradient] = ctx.saved_tensors
        return gradient * grads[0], None, None


def _losses_and_slopes(log_p: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the loss of each row [n], and its gradient for the logits [n, D]. Overwrites `logits`."""
    log_q = logits.sub_(logits.logsumexp(-1, keepdim=True))
    p, q = log_p.exp(), log_q.exp()
    overlap = torch.minimum(p, q).sum(-1, keepdim=True) + _TINY
    mass = p.sum(-1, keepdim=True)
    losses = (p * log_p).sum(-1) - (p * log_q).sum(-1) - overlap.log().squeeze(-1)
    winnable = torch.where(q < p, q, 0.0)
    slopes = q.mul_(mass + winnable.sum(-1, keepdim=True) / overlap).sub_(p).sub_(winnable.div_(overlap))
    return losses, slopes


@dataclass
class Acceptance:
    """Counts over held-out texts, by position in the draft.

    alive: chains whose earlier guesses were all right; right: those whose guess here is, too. overlap: sums of
    min(p, q) over `rows` rows. ranks [steps, 8]: how often the target's token was the k-th guess of a chain alive.
    """

    alive: Tensor
    right: Tensor
    overlap: Tensor
    rows: Tensor
    ranks: Tensor

    @staticmethod
    def empty(steps: int) -> Acceptance:
        zeros = torch.zeros(steps, dtype=torch.float64)
        return Acceptance(zeros.clone(), zeros.clone(), zeros.clone(), zeros.clone(), torch.zeros(steps, 8))

    @property
    def greedy(self) -> list[float]:
        """The share of all chains that are still right at each position: what greedy decoding accepts."""
        return [float(right / max(self.alive[0], torch.tensor(1.0))) for right in self.right]

    @property
    def sampled(self) -> list[float]:
        """Mean of sum of min(p, q) at each position, whatever came before."""
        return [
            float(total / max(rows, torch.tensor(1.0))) for total, rows in zip(self.overlap, self.rows, strict=True)
        ]
