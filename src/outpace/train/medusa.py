"""Heads that read the last layer's hidden state alone and guess each later position by themselves, in torch.

medusa      head s: h + silu(W_s h), then the target's final norm and output rows (Medusa, arXiv 2401.10774, with the
            target's own output matrix instead of one a head; W = 0 to begin with)
blockwise   one shared layer for all: r = relu(W h), head s: h + U_s r (Stern et al. 2018, 1811.03115)

They do not see the token that follows h, which the target has drawn by then: that is what they lose against `eagle`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from outpace.heads.config import HeadConfig
from outpace.train.network import later, rms_norm


class FeatureHeads(nn.Module):
    """The `medusa` and `blockwise` heads. Weights are named as the head's file names them."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = c = config
        h = c.hidden_size
        self.tap_norms = nn.Parameter(torch.ones(len(c.taps), h))
        self.output_norm = nn.Parameter(torch.ones(h))
        inner = h
        if c.kind == "blockwise":
            inner = c.ffn_size
            self.expand = nn.Parameter(torch.randn(inner, h) * h**-0.5)
        for step in range(c.block):
            setattr(self, f"guess_{step}", nn.Parameter(torch.zeros(h, inner)))

    def guesses(self, hidden: Tensor) -> list[Tensor]:
        """Returns each head's normed output [..., H] for hidden states of the taps [..., taps, H]."""
        x = rms_norm(hidden[..., -1, :], self.tap_norms[-1], self.config.norm_epsilon)
        shared = torch.relu(x @ self.expand.T) if self.config.kind == "blockwise" else x
        out = []
        for step in range(self.config.block):
            change = shared @ self.get_parameter(f"guess_{step}").T
            if self.config.kind == "medusa":
                change = nn.functional.silu(change)
            out.append(rms_norm(x + change, self.output_norm, self.config.norm_epsilon))
        return out

    def steps(self, hidden: Tensor, embedded: Tensor, count: int, begin: int = 0) -> list[Tensor]:
        """Returns the outputs of `count` heads for the rows from `begin` on, as `DraftNetwork.steps` does.

        Row t of step s belongs to the chain that began at t - s and proposes token t + 2.
        """
        return [later(y, step) for step, y in enumerate(self.guesses(hidden[:, begin:])[:count])]
