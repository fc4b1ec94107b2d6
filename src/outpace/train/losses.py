"""What training makes small, and what it is measured by.

A drafted token is accepted with probability sum over v of min(p, q) = 1 - TV(p, q), so the loss aims at that:

    loss = KL(p, q) - log(sum of min(p, q))

KL alone gives probability to what p holds likely and has gradients from the start; the second term stops paying for
tokens that the draft cannot win (as the total-variation losses of the literature do; its logarithm weighs rows where
little is accepted yet). Both are over the draft vocabulary; p's mass outside of it cannot be won and stays out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TINY = 1e-6


def acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Returns [...] the sum of min(p, q) over the last axis."""
    return torch.minimum(log_p.exp(), log_q.exp()).sum(-1)


def aimed_loss(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Returns [...] KL(p, q) - log(sum of min(p, q)) of laws [..., D]; p may sum to less than 1."""
    p = log_p.exp()
    kl = (p * (log_p - log_q)).sum(-1)
    return kl - torch.log(torch.minimum(p, log_q.exp()).sum(-1) + _TINY)


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
