"""What the commands of `outpace train` do, in terms of paths and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace import models
from outpace.api import Model, load
from outpace.errors import MissingExtra, UsageError
from outpace.heads.fingerprint import Embedding, fingerprint
from outpace.native.machine import checked_threads
from outpace.train.asking import Asking, write_prompts
from outpace.train.corpus import Corpora, Corpus, Progress, Recipe, write_corpus
from outpace.train.prompts import read_prompts, without
from outpace.train.record import file_sha256, run_record, seed_faults
from outpace.train.tasks import write_tasks
from outpace.types import Target

if TYPE_CHECKING:
    from outpace.train.fitting import Report

Show = Callable[[int, int, str], None]

OPENING = 256
"""Room for what a chat template puts in front of a user's turn, in tokens."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What `train data` writes. tokens: generated ones to have in the end."""

    tokens: int
    max_tokens: int
    max_prompt: int
    temperatures: tuple[float, ...]
    batch: int
    seed: int

    def check(self) -> None:
        """Raises UsageError naming every number that is out of range."""
        wrong = [
            f"{name} must be at least 1, got {value}"
            for name, value in (("tokens", self.tokens), ("max_tokens", self.max_tokens), ("batch", self.batch))
            if value < 1
        ]
        if self.max_prompt < 2:
            wrong.append(f"max_prompt must be at least 2, got {self.max_prompt}")
        wrong += [f"temperature must be at least 0, got {t}" for t in self.temperatures if not 0 <= t < math.inf]
        wrong += seed_faults(self.seed)
        if wrong:
            raise UsageError("; ".join(wrong))


def write_data(
    model: str,
    threads: int | None,
    prompts: Path,
    exclude: Sequence[Path],
    out: Path,
    answers: Answers,
    command: Sequence[str],
    show: Show,
) -> Progress:
    """Returns how far the corpus in `out` is. Raises UsageError when it was made of something else."""
    answers.check()
    texts = without(read_prompts(prompts), [text for path in exclude for text in read_prompts(path)])
    room = {"max_prompt": answers.max_prompt, "max_tokens": answers.max_tokens}
    with _loaded(model, threads, room) as loaded:
        target = loaded.target
        recipe = Recipe(
            taps=tap_layers(target.hidden_layers),
            temperatures=answers.temperatures,
            max_tokens=answers.max_tokens,
            max_prompt=answers.max_prompt,
            seed=answers.seed,
            target=fingerprint(_embedding(target)),
            prompts=file_sha256(prompts),
        )
        inputs = {"prompts": recipe.prompts, **{f"excluded {path.name}": file_sha256(path) for path in exclude}}
        ids = [loaded.text.render_chat([{"role": "user", "content": text}]) if text else [] for text in texts]
        shortest = min((len(one) for one in ids if one), default=0)
        if not 0 < shortest <= answers.max_prompt:
            long = f"the shortest has {shortest} tokens, and max_prompt is {answers.max_prompt}"
            raise UsageError(f"{prompts}: no prompt is left: {long if shortest else 'all are excluded'}")
        corpus = Corpus.open_or_create(out, recipe, run_record(command, answers.seed, inputs))

        def told(progress: Progress) -> None:
            show(progress.tokens, progress.wanted, f"{progress.tokens_per_second:,.0f} tokens/s")

        return write_corpus(target, ids, corpus, recipe, wanted=answers.tokens, batch=answers.batch, show=told)


def ask_prompts(model: str, threads: int | None, out: Path, asking: Asking, show: Show) -> int:
    """Returns how many prompts of the model's own `out` has. Raises as `write_prompts`."""
    asking.check()
    with _loaded(model, threads, {"the chat template": OPENING, "max_tokens": asking.max_tokens}) as loaded:
        return write_prompts(loaded.target, loaded.text, out, asking, show)


def task_prompts(model: str, folders: Sequence[Path], out: Path, count: int, seed: int) -> int:
    """Returns how many prompts `out` has: tasks over the answers of corpora. Raises as `write_tasks`, and UsageError
    where another model wrote the corpora."""
    corpora = Corpora(folders)
    with load(model, threads=1) as loaded:
        corpora.check_target(_embedding(loaded.target), loaded.target.name)
        return write_tasks(corpora, loaded.text, out, count, seed)


def _loaded(model: str, threads: int | None, room: Mapping[str, int]) -> Model:
    """Returns the model with a context of all parts of `room`. Raises UsageError naming them where it has none."""
    try:
        return load(model, threads=threads, context=sum(room.values()))
    except UsageError as error:
        parts = " + ".join(f"{name} ({tokens})" for name, tokens in room.items())
        told = str(error)
        raise UsageError(f"{told}: {parts}" if told.startswith("context must") else told) from None


def _embedding(target: Target) -> Embedding:
    """Returns the target. Raises UsageError for one whose embeddings cannot be read."""
    if not isinstance(target, Embedding):
        raise UsageError(f"training text needs a target with embeddings to read, {target.engine} has none")
    return target


def tap_layers(layers: int) -> tuple[int, ...]:
    """Returns an early, a middle and the last layer of a target, as EAGLE-3 fuses; laws are made of the last."""
    return tuple(sorted({layers // 4, layers * 5 // 8, layers - 1}))


@dataclass(frozen=True, slots=True)
class Training:
    """What the other commands train. minutes: None until the epochs are over. start: a head to go on from."""

    kind: str
    draft_vocab: int
    block: int
    epochs: float
    batch: int
    rate: float
    bits: int
    minutes: float | None
    seed: int
    start: Path | None = None

    def check(self) -> None:
        """Raises UsageError naming every number that is out of range."""
        wrong = []
        if not 1 <= self.block <= 16:
            wrong.append(f"block must be in [1, 16], got {self.block}")
        if self.batch < 1:
            wrong.append(f"batch must be at least 1, got {self.batch}")
        for name, value in (("epochs", self.epochs), ("rate", self.rate), ("minutes", self.minutes)):
            if value is not None and not 0 < value < math.inf:
                wrong.append(f"{name} must be positive, got {value}")
        wrong += seed_faults(self.seed)
        if wrong:
            raise UsageError("; ".join(wrong))


def train_head(
    model: str,
    threads: int | None,
    folders: Sequence[Path],
    out: Path,
    training: Training,
    command: Sequence[str],
    show: Show,
) -> dict[str, Any]:
    """Returns the card of the trained head, which is in `out`. Raises UsageError, MissingExtra, ModelError."""
    _use_torch(threads)
    from outpace.train.fitting import Schedule
    from outpace.train.making import Wanted, make_head

    training.check()
    schedule = Schedule(training.epochs, training.batch, training.rate, training.seed)
    if training.start is not None:  # its first step has been trained
        schedule = replace(schedule, unrolled_from=0.0)
    wanted = Wanted(
        kind=training.kind,
        draft_vocab=training.draft_vocab,
        block=training.block,
        format="Q8_0" if training.bits == 8 else "Q4_1",
        schedule=schedule,
        start=training.start,
        seconds=_seconds(training.minutes),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    return make_head(models.resolve(model), folders, out, wanted, command, _teller(show))


def _use_torch(threads: int | None) -> None:
    """Makes PyTorch use so many threads. Raises MissingExtra where it is not installed."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("training", "train") from None
    if threads is not None:
        torch.set_num_threads(checked_threads(threads))


def _seconds(minutes: float | None) -> float:
    return math.inf if minutes is None else 60 * minutes


def _teller(show: Show) -> Callable[[Report], None]:
    """Returns what puts a report of training into words, with the held-out acceptance that was known last."""
    latest = ""

    def told(report: Report) -> None:
        nonlocal latest
        if report.accepted is not None:
            latest = ", held-out " + " ".join(f"{share:.3f}" for share in report.accepted)
        words = f"loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s{latest}"
        show(report.step, report.steps, words)

    return told


@dataclass(frozen=True, slots=True)
class Healing:
    """What `train distill` does. minutes: None until the epochs are over."""

    epochs: float
    batch: int
    rate: float
    minutes: float | None
    seed: int

    def check(self) -> None:
        """Raises UsageError naming every number that is out of range."""
        Training("model", 1, 1, self.epochs, self.batch, self.rate, 8, self.minutes, self.seed).check()


def heal_draft(
    model: str,
    draft: str,
    threads: int | None,
    folders: Sequence[Path],
    out: Path,
    healing: Healing,
    command: Sequence[str],
    show: Show,
) -> dict[str, Any]:
    """Returns the card of the healed draft, which is in `out`. Raises UsageError, MissingExtra, ModelError."""
    _use_torch(threads)
    from outpace.train.distilling import heal
    from outpace.train.fitting import Schedule

    healing.check()
    schedule = Schedule(healing.epochs, healing.batch, healing.rate, healing.seed)
    source = models.resolve(draft)
    if source.is_dir() or out.suffix != ".gguf":
        raise UsageError(f"a draft is a GGUF file, before and after, got {source.name} and {out.name}")
    out.parent.mkdir(parents=True, exist_ok=True)
    return heal(
        models.resolve(model), source, folders, out, schedule, command, _teller(show), _seconds(healing.minutes)
    )
