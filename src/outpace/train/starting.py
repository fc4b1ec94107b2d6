"""Where training starts: the best linear guess of the target's next hidden state, in closed form.

A head that has learned nothing says again the token that it was given. The least-squares map from (features at t,
the embedding of token t + 1) to the direction of the last layer's hidden state at t + 1 takes seconds instead of many
steps of descent. The decoder layer starts as the target's last one with its two outputs small: it adds to that guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outpace.train.batches import Text
from outpace.train.network import DraftNetwork
from outpace.train.source import Source

_RIDGE = 1e-3
_SMALL = 0.1


def start(network: DraftNetwork, source: Source, texts: Sequence[Text], *, rows: int, seed: int) -> None:
    """Sets the network's weights from the target's and from about `rows` rows of the texts."""
    inputs, wanted = linear_rows(network, source, texts, rows, seed)
    gram = inputs.T @ inputs
    gram += torch.eye(len(gram)) * (_RIDGE * gram.diagonal().mean())
    solved = torch.linalg.solve(gram, inputs.T @ wanted).T  # [H, (taps + 1) H]
    h = network.config.hidden_size
    with torch.no_grad():
        for name, value in source.last_layer.items():
            network.get_parameter(name).copy_(value)
        network.attn_output.mul_(_SMALL)
        network.ffn_down.mul_(_SMALL)
        network.output_norm.copy_(source.output_norm)
        network.fuse.copy_(solved[:, :-h])
        network.embed.copy_(solved[:, -h:])
        network.state.copy_(solved[:, -2 * h : -h])


@torch.no_grad()
def linear_rows(
    network: DraftNetwork, source: Source, texts: Sequence[Text], rows: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Returns [N, (taps + 1) H] normed features and embeddings, and [N, H] the directions to be guessed."""
    inputs: list[Tensor] = []
    wanted: list[Tensor] = []
    found = 0
    for index in np.random.default_rng(seed).permutation(len(texts)):
        text = texts[index]
        at = slice(text.prompt - 1, len(text.tokens) - 2)
        hidden = torch.from_numpy(np.array(text.hidden[text.prompt - 1 : len(text.tokens) - 1])).float()
        following = source.embedding[torch.from_numpy(text.tokens[at.start + 1 : at.stop + 1].astype(np.int64))]
        unit = network.unit(hidden)
        inputs.append(torch.cat((unit[:-1].flatten(1), network.unit(following)), 1))
        wanted.append(unit[1:, -1])
        found += len(following)
        if found >= rows:
            break
    return torch.cat(inputs), torch.cat(wanted)
