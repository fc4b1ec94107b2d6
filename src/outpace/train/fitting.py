"""Training of heads and of draft models: batches, steps, checkpoints, held-out acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from time import perf_counter as clock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outpace.errors import UsageError
from outpace.train.batches import Batch, Text, batches
from outpace.train.decoder import Decoder
from outpace.train.losses import Acceptance, acceptance, mean_aimed_loss
from outpace.train.medusa import FeatureHeads
from outpace.train.network import DraftNetwork
from outpace.train.record import atomic
from outpace.train.source import Source

STEP_WEIGHT = 0.8
"""Each further position counts this much of the one before: it is reached less often."""

UNROLLED_FROM = 0.4
"""Until this share of a run only the first step is trained: it costs a third, and the others build on it."""

_WARM_UP = 0.05
_CLIP = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast. epochs: passes over the corpus. rate: of Adam after a warm-up, then half a cosine."""

    epochs: float
    batch: int
    rate: float
    seed: int
    unrolled_from: float = UNROLLED_FROM

    def rate_at(self, step: int, steps: int) -> float:
        warm = max(1, int(steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


@dataclass(frozen=True, slots=True)
class Report:
    """What a training run says of itself every few steps."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    accepted: list[float] | None  # held-out, greedy, by position; None between evaluations


class Fit:
    """One training run; `run` goes on from wherever its checkpoint stands. data: the texts' hash."""

    def __init__(
        self,
        network: DraftNetwork | FeatureHeads | Decoder,
        source: Source,
        draft_ids: Tensor,
        texts: tuple[Sequence[Text], Sequence[Text]],
        schedule: Schedule,
        checkpoint: Path,
        data: str,
    ) -> None:
        self.network: Any = network
        self.data = data
        self.source, self.draft_ids = source, draft_ids
        self.training, self.held_out = texts
        self.schedule, self.checkpoint = schedule, checkpoint
        self.head = source.output[draft_ids]  # makes the target's laws where acceptance is counted
        self.taught = self.head.bfloat16()  # and those to learn from
        self.head_bf16 = self.taught  # makes the network's own
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        per_epoch = math.ceil(len(self.training) / schedule.batch)
        self.steps = max(1, round(per_epoch * schedule.epochs))
        self.step = 0
        self.history: list[dict[str, Any]] = []

    def guesses(self, batch: Batch, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yields (outputs [n, H], the target's states [n, H] and log sums [n] one token on, row numbers [n, 2]) of
        the rows that count, for `count` steps."""
        embedded = self.source.embedding[torch.roll(batch.tokens, -1, 1)]
        hidden, log_sums = batch.hidden[:, batch.begin + 1 :, -1], batch.log_sums[:, batch.begin + 1 :]
        with torch.autocast("cpu", torch.bfloat16):
            outputs = self.network.steps(batch.hidden, embedded, count, batch.begin)
        for step, y in enumerate(outputs):
            rows = batch.counts(step)[:, :-1]
            yield y[:, :-1][rows], hidden[rows], log_sums[rows], rows.nonzero()

    def laws(self, batch: Batch, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields (log p, log q, row numbers [n, 2]) of the rows that count, for `count` steps."""
        for y, hidden, log_sums, rows in self.guesses(batch, count):
            logits = (y.bfloat16() @ self.head_bf16.T).float()
            yield self.source.laws(hidden, log_sums, self.head), logits.log_softmax(-1), rows

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean over rows of the steps' losses, weighed."""
        total = torch.zeros(())
        count = self.network.config.block if self.step >= self.schedule.unrolled_from * self.steps else 1
        for step, (y, hidden, log_sums, _) in enumerate(self.guesses(batch, count)):
            if len(y):
                targets = partial(self._laws_of, hidden, log_sums)
                total = total + STEP_WEIGHT**step * mean_aimed_loss(y, self.head_bf16, targets)
        return total

    def as_used(self) -> AbstractContextManager[None]:
        """Returns what a step's loss and gradients are computed in: here nothing out of the ordinary."""
        return nullcontext()

    def _laws_of(self, hidden: Tensor, log_sums: Tensor, rows: slice) -> Tensor:
        return self.source.laws(hidden[rows], log_sums[rows], self.taught)

    def run(
        self, show: Callable[[Report], None], *, evaluate_every: int = 100, seconds: float = math.inf
    ) -> Acceptance:
        """Returns the held-out acceptance at the end. Ends early after `seconds`, the schedule being as it was."""
        self.resume()
        started, first, done = clock(), self.step, 0
        for batch in self._batches():
            if self.step >= self.steps or clock() - started > seconds:
                break
            for group in self.optimiser.param_groups:
                group["lr"] = self.schedule.rate_at(self.step, self.steps)
            self.optimiser.zero_grad(set_to_none=True)
            with self.as_used():
                loss = self.loss(batch)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), _CLIP)
            self.optimiser.step()
            self.step += 1
            done += int((batch.lengths - batch.prompts).sum())
            accepted = None
            if self.step % evaluate_every == 0 and self.step < self.steps:
                accepted = self.evaluate(limit=64).greedy
                self.history.append({"step": self.step, "loss": float(loss.detach()), "accepted": accepted})
                self.save()
            spent = clock() - started
            left = spent / (self.step - first) * (self.steps - self.step)
            show(Report(self.step, self.steps, float(loss.detach()), done / spent, left, accepted))
        self.save()
        return self.evaluate()

    def _batches(self) -> Iterator[Batch]:
        """Yields batches from where `step` stands, epoch after epoch, in the order that the seed gives."""
        per_epoch = math.ceil(len(self.training) / self.schedule.batch)
        epoch = self.step // per_epoch
        skip = self.step % per_epoch
        while True:
            rng = np.random.default_rng((self.schedule.seed, epoch))
            yield from batches(self.training, self.schedule.batch, rng, skip)
            epoch, skip = epoch + 1, 0

    @torch.no_grad()
    def evaluate(self, limit: int | None = None) -> Acceptance:
        """Returns acceptance by position on held-out texts: greedy ones for guesses, sampled ones for overlaps."""
        found = Acceptance.empty(self.network.config.block)
        spread = max(1, len(self.held_out) // limit) if limit else 1  # some of every corpus
        for batch in batches(self.held_out[::spread][:limit], 8, np.random.default_rng(0)):
            alive = torch.ones_like(batch.tokens, dtype=torch.bool)
            for step, (log_p, log_q, rows) in enumerate(self.laws(batch, self.network.config.block)):
                alive = self._count(found, batch, step, (log_p, log_q), rows, alive)
        return found

    def _count(
        self, found: Acceptance, batch: Batch, step: int, laws: tuple[Tensor, Tensor], rows: Tensor, alive: Tensor
    ) -> Tensor:
        """Adds one step of a batch to the counts; returns [B, T] which chains (by first row) are still right."""
        log_p, log_q = laws
        text, row = rows[:, 0], rows[:, 1] + batch.begin
        greedy = batch.greedy[text]
        sampled = ~greedy
        found.rows[step] += sampled.sum()
        found.overlap[step] += acceptance(log_p[sampled], log_q[sampled]).sum()
        guesses = self.draft_ids[log_q[greedy].topk(8, -1).indices]
        text, row = text[greedy], row[greedy]
        living = alive[text, row - step]
        hits = guesses == batch.tokens[text, row + 2][:, None]
        found.alive[step] += living.sum()
        found.right[step] += (living & hits[:, 0]).sum()
        found.ranks[step] += hits[living].sum(0)
        still = torch.zeros_like(alive)
        still[text, row - step] = living & hits[:, 0]
        return still

    def _identity(self) -> dict[str, Any]:
        config = self.network.config.to_json()
        return {"schedule": asdict(self.schedule), "config": config, "steps": self.steps, "data": self.data}

    def save(self) -> None:
        """Writes the checkpoint as a whole or not at all."""
        state = {
            "identity": self._identity(),
            "step": self.step,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "history": self.history,
        }
        # A file, not a path: what goes wrong with that is an OSError, and no RuntimeError of torch's own.
        with atomic(self.checkpoint) as path, path.open("wb") as file:
            torch.save(state, file)

    def resume(self) -> None:
        """Goes on from the checkpoint, if there is one. Raises UsageError when it is of another run."""
        if not self.checkpoint.exists():
            return
        try:
            state = torch.load(self.checkpoint, weights_only=True)
            identity = state["identity"]
        except (RuntimeError, UnpicklingError, EOFError, LookupError, TypeError, ValueError):
            raise UsageError(f"{self.checkpoint} is not a whole checkpoint: remove it to start again") from None
        if identity != self._identity():
            raise UsageError(
                f"{self.checkpoint} belongs to a run with other settings or texts: remove it, or name another folder"
            )
        self.step, self.history = state["step"], state["history"]
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
