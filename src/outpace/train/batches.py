"""A corpus as batches: texts of like lengths together, and which rows count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.errors import UsageError
from outpace.train.corpus import HELD_OUT_EVERY, Corpora, read_shard

_WINDOW = 32  # batches whose texts are sorted by the length of their prompts


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a shard, mapped: tokens [n], hidden [n, taps, H], log_sums [n]; `prompt` tokens were given."""

    tokens: NDArray[np.int32]
    hidden: NDArray[np.float16]
    log_sums: NDArray[np.float32]
    prompt: int
    greedy: bool

    def prompt_bytes(self) -> bytes:
        """Returns what texts of the same prompt have alike."""
        return self.tokens[: self.prompt].tobytes()


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts side by side. Row t predicts token t + 2.

    hidden [B, T, taps, H] f16, tokens [B, T] padded with 0, log_sums [B, T], prompts and lengths [B], greedy [B].
    Rows from `begin` on are computed.
    """

    hidden: Tensor
    tokens: Tensor
    log_sums: Tensor
    prompts: Tensor
    lengths: Tensor
    greedy: Tensor
    begin: int

    def counts(self, step: int) -> Tensor:
        """Returns [B, T - begin] which rows of a step count: chains that began when an answer's token had been drawn,
        and whose law is known."""
        rows = torch.arange(self.begin, self.tokens.shape[1])[None, :]
        return (rows - step >= self.prompts[:, None] - 1) & (rows <= self.lengths[:, None] - 3)


def read_texts(corpora: Corpora) -> tuple[list[Text], list[Text]]:
    """Returns the texts to train on and those held out. Raises UsageError when either is empty.

    No text is trained on whose prompt, perhaps in another corpus, is held out.
    """
    training: list[Text] = []
    held_out: list[Text] = []
    for path in corpora.shards():
        a = read_shard(path)
        for n, index in enumerate(a["indices"]):
            at = slice(int(a["offsets"][n]), int(a["offsets"][n + 1]))
            prompt = int(a["prompts"][n])
            if at.stop - at.start < prompt + 3:
                continue
            text = Text(a["tokens"][at], a["hidden"][at], a["log_sums"][at], prompt, bool(a["temperatures"][n] == 0))
            (training if index % HELD_OUT_EVERY else held_out).append(text)
    unseen = {text.prompt_bytes() for text in held_out}
    training = [text for text in training if text.prompt_bytes() not in unseen]
    if not training or not held_out:
        raise UsageError(f"{corpora.name}: {len(training)} + {len(held_out)} texts are too few; write more of them")
    return training, held_out


def batches(texts: Sequence[Text], size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
    """Yields each text once, in an order of the generator's; without the first `skip` batches."""
    order = rng.permutation(len(texts))
    groups: list[list[Text]] = []
    for first in range(0, len(order), size * _WINDOW):
        window = sorted((texts[i] for i in order[first : first + size * _WINDOW]), key=lambda text: text.prompt)
        groups += [window[at : at + size] for at in range(0, len(window), size)]
    for group in rng.permutation(len(groups))[skip:]:
        yield collate(groups[group])


def collate(texts: Sequence[Text]) -> Batch:
    """Returns the texts as one batch."""
    longest = max(len(text.tokens) for text in texts)
    hidden = np.zeros((len(texts), longest, *texts[0].hidden.shape[1:]), np.float16)
    tokens = np.zeros((len(texts), longest), np.int64)
    log_sums = np.zeros((len(texts), longest), np.float32)
    for row, text in enumerate(texts):
        n = len(text.tokens)
        hidden[row, :n], tokens[row, :n], log_sums[row, :n] = text.hidden, text.tokens, text.log_sums
    return Batch(
        hidden=torch.from_numpy(hidden),
        tokens=torch.from_numpy(tokens),
        log_sums=torch.from_numpy(log_sums),
        prompts=torch.tensor([text.prompt for text in texts]),
        lengths=torch.tensor([len(text.tokens) for text in texts]),
        greedy=torch.tensor([text.greedy for text in texts]),
        begin=max(0, min(text.prompt for text in texts) - 1),
    )
