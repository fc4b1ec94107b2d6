"""A draft model healed by distillation: it learns the target's laws on text that the target wrote.

As DistillSpec does (arXiv 2310.08461), with the loss that aims at acceptance: the target's laws come from the hidden
states that were kept while it wrote, so no pass of the target is needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outpace.errors import VocabularyMismatch
from outpace.native.loading import open_weights
from outpace.text import Text as Words
from outpace.train.batches import Batch, Text, read_texts
from outpace.train.corpus import Corpora
from outpace.train.decoder import Decoder
from outpace.train.fitting import Fit, Report, Schedule
from outpace.train.making import held_out_figures
from outpace.train.record import run_record, write_json
from outpace.train.source import Source, read_source
from outpace.vocabulary import compare


class Distilling(Fit):
    """The training run of a model; its network gives the law of each next token from the tokens alone."""

    network: Decoder

    def __init__(
        self,
        network: Decoder,
        source: Source,
        texts: tuple[Sequence[Text], Sequence[Text]],
        schedule: Schedule,
        checkpoint: Path,
        data: str,
    ) -> None:
        super().__init__(network, source, network.output_ids, texts, schedule, checkpoint, data)
        self.head_bf16 = network.output.bfloat16()

    def guesses(self, batch: Batch, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yields what a head's run does, once; row t is about token t + 2."""
        rows = batch.counts(0)[:, :-1]
        ahead = slice(batch.begin + 1, None)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.network(batch.tokens)[:, ahead]
        yield y[rows], batch.hidden[:, ahead, -1][rows], batch.log_sums[:, ahead][rows], rows.nonzero()


def heal(
    model: Path,
    draft: Path,
    folders: Sequence[Path],
    out: Path,
    schedule: Schedule,
    command: Sequence[str],
    show: Callable[[Report], None],
    seconds: float,
) -> dict[str, Any]:
    """Returns the card of the healed draft, a GGUF file that is in `out`, with its record beside it.

    model: the target that wrote the corpora of `folders`. draft: the GGUF to begin with. The checkpoint lies beside
    `out` until the draft is written, so that the same call goes on after an interruption.
    Raises VocabularyMismatch, UsageError when the corpus or the checkpoint is of something else, and ModelError.
    """
    _check_tokens(model, draft)
    torch.manual_seed(schedule.seed)
    network, source, corpora = Decoder(draft), read_source(model), Corpora(folders)
    corpora.check_target(source, model.name)
    training, held_out = read_texts(corpora)
    checkpoint = out.with_suffix(".checkpoint")
    data = corpora.content_hash()
    fit = Distilling(network, source, (training, held_out), schedule, checkpoint, data)
    before = held_out_figures(fit.evaluate())
    found = fit.run(show, seconds=seconds)
    inputs = {"corpus": data, "target": corpora.target, "draft": network.config.sha256}
    card = run_record(command, schedule.seed, inputs) | {
        "held_out": held_out_figures(found),
        "held_out_before": before,
        "steps": fit.step,
        "steps_planned": fit.steps,
        "texts": len(training),
        "loss": "KL(p, q) - log(sum of min(p, q))",
    }
    network.write(draft, out, shlex.join(command), lambda fraction: None)
    write_json(out.with_suffix(".json"), {**card, "history": fit.history})
    if fit.step >= fit.steps:
        checkpoint.unlink(missing_ok=True)
    return card


def _check_tokens(model: Path, draft: Path) -> None:
    with closing(open_weights(model)) as target, closing(open_weights(draft)) as small:
        comparison = compare(Words.from_weights(target).vocabulary, Words.from_weights(small).vocabulary)
    if not comparison.usable:
        raise VocabularyMismatch(f"{draft.name} cannot draft for {model.name}: {comparison}")
