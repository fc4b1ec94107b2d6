"""From a corpus to a head's file: one run, resumable, with its record in the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.heads.config import FEATURE_HEADS, HeadConfig
from outpace.heads.file import matrix_shapes, read_head, save_head
from outpace.native.dequantise import dequantise
from outpace.native.weights import ModelConfig
from outpace.train.batches import Text, read_texts
from outpace.train.corpus import Corpora
from outpace.train.fitting import Report, Schedule
from outpace.train.losses import Acceptance
from outpace.train.medusa import FeatureHeads
from outpace.train.network import DraftNetwork
from outpace.train.record import run_record, write_json
from outpace.train.rounding import HeadFit
from outpace.train.source import Source, read_source
from outpace.train.starting import start

START_ROWS = 30_000
_PROMPT_SHARE = 0.1  # of a token in a prompt, beside one in an answer, when the draft vocabulary is chosen


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to train.

    draft_vocab: tokens it can propose. block: how many after the last committed one it is trained for. format: of its
    matrices in the file. start: a head whose weights to go on from. seconds: after which
    training ends wherever it is.
    """

    kind: str
    draft_vocab: int
    block: int
    format: str
    schedule: Schedule
    start: Path | None = None
    seconds: float = math.inf


def make_head(
    model: Path,
    folders: Sequence[Path],
    out: Path,
    wanted: Wanted,
    command: Sequence[str],
    show: Callable[[Report], None],
) -> dict[str, Any]:
    """Returns the card of the head that was trained on the corpora of `folders` and written to `out`.

    The checkpoint lies beside `out` until the head is written, so that the same call goes on after an interruption.
    Raises UsageError when the corpus or the checkpoint is of something else.
    """
    torch.manual_seed(wanted.schedule.seed)
    source = read_source(model)
    corpora = Corpora(folders)
    corpora.check_target(source, model.name)
    training, held_out = read_texts(corpora)
    config = head_config(wanted, source.config, corpora)
    checkpoint = out.with_suffix(".checkpoint")
    draft_ids = draft_vocabulary(training, wanted.draft_vocab, source.config.vocab_size)
    if wanted.start is None:
        network = started(config, source, training, wanted.schedule.seed, fresh=not checkpoint.exists())
    else:
        network = continued(config, wanted.start)
    data, texts = corpora.content_hash(), (training, held_out)
    ids = torch.from_numpy(draft_ids)
    fit = HeadFit(wanted.format, network, source, ids, texts, wanted.schedule, checkpoint, data)
    found = fit.run(show, seconds=wanted.seconds)
    card = run_record(command, wanted.schedule.seed, {"corpus": data, "target": config.target})
    card |= {
        "held_out": held_out_figures(found),
        "coverage": coverage(held_out, draft_ids),
        "steps": fit.step,
        "steps_planned": fit.steps,
        "texts": len(training),
        "generated_tokens": sum(len(text.tokens) - text.prompt for text in training),
        "loss": "KL(p, q) - log(sum of min(p, q))" if config.kind in ("eagle", "parallel") else "the same, each head",
    }
    weights = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    save_head(out, config, draft_ids, weights, wanted.format, card)
    write_json(out.with_suffix(".json"), {**card, "history": fit.history})
    if fit.step >= fit.steps:
        checkpoint.unlink(missing_ok=True)
    return card


def started(
    config: HeadConfig, source: Source, texts: Sequence[Text], seed: int, *, fresh: bool
) -> DraftNetwork | FeatureHeads:
    """Returns the network of a config; a fresh one starts from the target, the other from a checkpoint to be read."""
    if config.kind in FEATURE_HEADS:
        heads = FeatureHeads(config)
        with torch.no_grad():
            heads.output_norm.copy_(source.output_norm)
        return heads
    network = DraftNetwork(config)
    if fresh:
        start(network, source, texts, rows=START_ROWS, seed=seed)
    return network


def continued(config: HeadConfig, path: Path) -> DraftNetwork | FeatureHeads:
    """Returns the network of a head's file. Raises UsageError when its shape is another."""
    head = read_head(path)
    differs = [
        f"{name} {getattr(head.config, name)} there, {getattr(config, name)} asked for"
        for name in config.__slots__
        if name not in ("kind", "block", "draft_vocab") and getattr(head.config, name) != getattr(config, name)
    ]
    if not differs and matrix_shapes(head.config) != matrix_shapes(config):
        differs = [
            f"kind {head.config.kind}, block {head.config.block} there, {config.kind}, {config.block} asked for"
        ]
    if differs:
        raise UsageError(f"{path} is a head of another shape: {'; '.join(differs)}")
    network = FeatureHeads(config) if config.kind in FEATURE_HEADS else DraftNetwork(config)
    weights = {name: np.array(value) for name, value in head.vectors.items() if name != "mask"}
    for name, (format, blocks) in head.matrices.items():
        weights[name] = dequantise(blocks, format, *matrix_shapes(head.config)[name])
    with torch.no_grad():
        for name, value in weights.items():
            network.get_parameter(name).copy_(torch.from_numpy(value).view_as(network.get_parameter(name)))
    return network


def held_out_figures(found: Acceptance) -> dict[str, Any]:
    """Returns acceptance by position: greedy chains with their standard errors, and overlaps of sampled texts."""
    rows = float(found.alive[0])
    return {
        "greedy": [round(share, 4) for share in found.greedy],
        "greedy_error": [round(math.sqrt(share * (1 - share) / max(1.0, rows)), 4) for share in found.greedy],
        "greedy_rows": int(rows),
        "sampled_overlap": [round(share, 4) for share in found.sampled],
        "sampled_rows": int(found.rows[0]),
        "ranks": [[round(float(n) / max(1.0, float(alive)), 4) for n in row]
                  for row, alive in zip(found.ranks, found.alive, strict=True)],
    }  # fmt: skip


def head_config(wanted: Wanted, c: ModelConfig, corpora: Corpora) -> HeadConfig:
    """Returns the config of a head whose layer has the shape of the target's layers."""
    return HeadConfig(
        kind=wanted.kind,
        taps=corpora.taps,
        hidden_size=c.hidden_size,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        ffn_size=c.ffn_size,
        vocab_size=c.vocab_size,
        draft_vocab=wanted.draft_vocab,
        block=wanted.block,
        norm_epsilon=c.norm_epsilon,
        rope_theta=c.rope.theta,
        rope_interleaved=c.rope_interleaved,
        target=corpora.target,
    )


def draft_vocabulary(texts: Sequence[Text], size: int, vocab_size: int) -> NDArray[np.int64]:
    """Returns the `size` most frequent tokens of the answers, in rising order; prompts count a little, too."""
    if not 1 <= size <= vocab_size:
        raise UsageError(f"the draft vocabulary must have 1 to {vocab_size} tokens, got {size}")
    counts = np.zeros(vocab_size)
    for text in texts:
        np.add.at(counts, text.tokens[text.prompt :], 1)
        np.add.at(counts, text.tokens[: text.prompt], _PROMPT_SHARE)
    return np.sort(np.argsort(-counts, kind="stable")[:size])


def coverage(texts: Sequence[Text], draft_ids: NDArray[np.int64]) -> float:
    """Returns the share of the answers' tokens that the draft vocabulary has."""
    answers = np.concatenate([text.tokens[text.prompt :] for text in texts])
    return float(np.isin(answers, draft_ids).mean())
