"""Training text written by the target itself, with its features captured on the way.

A corpus is a folder: `corpus.json` (what it is made of) and shards. A shard holds whole texts one after the other:

tokens        I32 [N]: prompt and answer of each text
offsets       I64 [texts + 1]: where each begins
prompts       I32 [texts]: tokens of each prompt
indices       I64 [texts]: which prompt of the file it answers
temperatures  F32 [texts]
hidden        F16 [N, taps, H]: the target's hidden states at each token; the last one of a text was never scored, its
              row is 0
log_sums      F32 [N]: the logarithm of the sum of exp of the target's logits after each token, 0 for tokens of the
              prompt but its last: with the final norm and head it turns the last layer's state into the target's law
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile, UsageError
from outpace.heads import tensorfile
from outpace.heads.fingerprint import Embedding, fingerprint
from outpace.sampling import Sampler, SamplingParams
from outpace.train.record import read_json, write_json
from outpace.types import EMPTY, Array, Prompt, Target, TargetSession, Verdict

SHARD_TOKENS = 1 << 15

HELD_OUT_EVERY = 20
"""One prompt in so many, by its index, is never trained on."""

_F16_MAX = 65504.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a corpus is made of. temperatures: of the samples, taken in turn by the prompts in shuffled order."""

    taps: tuple[int, ...]
    temperatures: tuple[float, ...]
    max_tokens: int
    max_prompt: int
    seed: int
    target: str  # its fingerprint
    prompts: str  # their hash

    def plain(self) -> dict[str, Any]:
        """Returns the recipe as JSON has it."""
        return {name: _listed(getattr(self, name)) for name in self.__slots__}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _checked_recipe(recipe: Any, path: Path) -> dict[str, Any]:
    """Returns the recipe of a corpus.json. Raises UsageError where what a reader needs of it is not there."""
    if not isinstance(recipe, dict) or not isinstance(recipe.get("target"), str):
        raise UsageError(f"{path}: has no recipe with a target: `outpace train data` makes one in a new folder")
    taps = recipe.get("taps")
    if not isinstance(taps, list) or not taps or not all(type(tap) is int and tap >= 0 for tap in taps):
        raise UsageError(f"{path}: its recipe has no taps: `outpace train data` makes one in a new folder")
    return recipe


_SHARD = {  # name -> (type, dimensions)
    "tokens": (np.int32, 1),
    "offsets": (np.int64, 1),
    "prompts": (np.int32, 1),
    "indices": (np.int64, 1),
    "temperatures": (np.float32, 1),
    "log_sums": (np.float32, 1),
    "hidden": (np.float16, 3),
}


def read_shard(path: Path) -> Mapping[str, NDArray[Any]]:
    """Returns the arrays of a shard, mapped. Raises BadModelFile where they contradict each other."""
    a = tensorfile.read(path).arrays
    for name, (dtype, dimensions) in _SHARD.items():
        if name not in a or a[name].dtype != dtype or a[name].ndim != dimensions:
            raise BadModelFile(f"{path}: no shard of a corpus: it has no {name} of {dimensions} dimensions")
    texts, tokens = len(a["prompts"]), len(a["tokens"])
    lengths = {name: len(a[name]) for name in _SHARD}
    wanted = dict.fromkeys(("prompts", "indices", "temperatures"), texts)
    wanted |= dict.fromkeys(("tokens", "log_sums", "hidden"), tokens) | {"offsets": texts + 1}
    if wrong := [f"{lengths[name]} {name}" for name in wanted if lengths[name] != wanted[name]]:
        raise BadModelFile(f"{path}: {texts} texts of {tokens} tokens cannot have {', '.join(wrong)}")
    parts = np.diff(a["offsets"])
    if a["offsets"][0] != 0 or a["offsets"][-1] != tokens or (a["prompts"] < 1).any() or (parts < a["prompts"]).any():
        raise BadModelFile(f"{path}: its texts do not fill its {tokens} tokens one after the other")
    return a


@dataclass(slots=True)
class Writing:
    """One text in the making."""

    index: int
    session: TargetSession
    sampler: Sampler
    temperature: float
    tokens: list[int]
    prompt: int
    limit: int
    hidden: list[NDArray[np.float16]]
    log_sums: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; tokens are generated ones, prompts aside."""

    tokens: int
    wanted: int
    tokens_per_second: float

    @property
    def seconds_left(self) -> float:
        return max(0, self.wanted - self.tokens) / self.tokens_per_second if self.tokens_per_second else 0.0


class Corpus:
    """A folder of shards, to be read or to be added to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        described = read_json(folder / "corpus.json")
        if described is None:
            raise UsageError(f"{folder}: no corpus here: `outpace train data` makes one")
        self.recipe: dict[str, Any] = _checked_recipe(described.get("recipe"), folder / "corpus.json")

    @staticmethod
    def open_or_create(folder: Path, recipe: Recipe, record: dict[str, Any]) -> Corpus:
        """Returns the corpus of a folder. Raises UsageError when it is there and was made of something else."""
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file: name a folder")
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "corpus.json").exists():
            write_json(folder / "corpus.json", {"recipe": recipe.plain(), "run": record})
        corpus = Corpus(folder)
        wanted = recipe.plain()
        different = [name for name in wanted if corpus.recipe.get(name) != wanted[name]]
        if different:
            told = ", ".join(
                f"{name} {corpus.recipe.get(name)} there, {wanted[name]} asked for" for name in different
            )
            raise UsageError(f"{folder} holds a corpus made otherwise ({told}): name another folder")
        return corpus

    def shards(self) -> list[Path]:
        """Returns the finished shards in order."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def content_hash(self) -> str:
        """Returns a hash of the recipe and of every shard's tokens: what tells one state of a corpus from another."""
        digest = hashlib.sha256(json.dumps(self.recipe, sort_keys=True).encode())
        for path in self.shards():
            digest.update(read_shard(path)["tokens"].tobytes())
        return digest.hexdigest()

    def written(self) -> tuple[set[int], int]:
        """Returns which prompts have their text, and how many tokens were generated in all."""
        done: set[int] = set()
        tokens = 0
        for path in self.shards():
            arrays = read_shard(path)
            done |= {int(index) for index in arrays["indices"]}
            tokens += int(arrays["offsets"][-1] - arrays["prompts"].sum())
        return done, tokens


class Corpora:
    """Several corpora of one target, to be trained on as one: answers to other prompts, or at other temperatures.

    Raises UsageError for folders without a corpus, and for those of other targets or layers.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        if not folders:
            raise UsageError("training needs a folder with a corpus, got none")
        self.parts = [Corpus(folder) for folder in folders]
        self.name = ", ".join(map(str, folders))
        first = self.parts[0].recipe
        self.target: str = first["target"]
        self.taps: tuple[int, ...] = tuple(first["taps"])
        for corpus in self.parts[1:]:
            for name in ("target", "taps"):
                if corpus.recipe[name] != first[name]:
                    raise UsageError(
                        f"{corpus.folder} cannot be joined to {folders[0]}: {name} {corpus.recipe[name]} there, "
                        f"{first[name]} here"
                    )

    def check_target(self, target: Embedding, name: str) -> None:
        """Raises UsageError where another model wrote the corpora."""
        if fingerprint(target) != self.target:
            raise UsageError(f"{self.name} was written by another model than {name}: name that with --model")

    def shards(self) -> list[Path]:
        """Returns the finished shards of each in order."""
        return [path for corpus in self.parts for path in corpus.shards()]

    def content_hash(self) -> str:
        """Returns the hash of the corpus, or of all their hashes in turn."""
        hashes = [corpus.content_hash() for corpus in self.parts]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def write_corpus(
    target: Target,
    prompts: Sequence[Sequence[int]],
    corpus: Corpus,
    recipe: Recipe,
    *,
    wanted: int,
    batch: int = 16,
    show: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Returns how far the corpus is once it has `wanted` generated tokens, or every prompt its text.

    prompts: ids, in the order of the prompt file; those with fewer than two are left out. What a text says depends on
    the recipe and its prompt alone, so a run that was interrupted goes on where its last shard ended.
    """
    done, had = corpus.written()
    order = np.random.default_rng(recipe.seed).permutation(len(prompts))
    waiting = (int(i) for i in order if int(i) not in done and 2 <= len(prompts[i]) <= recipe.max_prompt)
    place = {int(index): at for at, index in enumerate(order)}
    running: list[Writing] = []
    finished: list[Writing] = []
    started, made = clock(), 0
    try:
        while True:
            while had + made < wanted and len(running) < batch and (index := next(waiting, None)) is not None:
                running.append(_begin(target, prompts[index], index, place[index], recipe))
            if not running:
                break
            made += advance(target, running)
            for text in [text for text in running if _over(target, text)]:
                running.remove(text)
                text.session.close()
                finished.append(text)
            if sum(len(text.tokens) for text in finished) >= SHARD_TOKENS:
                _write_shard(corpus, finished)
                finished = []
            show(Progress(had + made, wanted, made / (clock() - started)))
    finally:
        for text in running:
            text.session.close()
        if finished:
            _write_shard(corpus, finished)
    return Progress(had + made, wanted, made / (clock() - started))


def _begin(target: Target, ids: Sequence[int], index: int, place: int, recipe: Recipe) -> Writing:
    session, context = target.open(Prompt(tuple(ids)), recipe.taps)
    temperature = recipe.temperatures[place % len(recipe.temperatures)]
    return Writing(
        index=index,
        session=session,
        sampler=Sampler(SamplingParams(temperature=temperature), recipe.seed, index),
        temperature=temperature,
        tokens=list(ids),
        prompt=len(ids),
        limit=min(len(ids) + recipe.max_tokens, target.max_length),
        hidden=[_half(context.hidden)],
    )


def _half(hidden: Array) -> NDArray[np.float16]:
    half: NDArray[np.float16] = np.clip(hidden, -_F16_MAX, _F16_MAX).astype(np.float16)
    return half


def advance(target: Target, running: Sequence[Writing]) -> int:
    """Adds one token to each text in one pass; returns how many."""
    scores = target.score_many([(text.session, EMPTY) for text in running])
    for text, score in zip(running, scores, strict=True):
        [token] = text.sampler.draw_all(score, text.tokens, EMPTY)
        text.session.commit(EMPTY, Verdict((), token))
        text.hidden.append(_half(score.hidden))
        text.log_sums.append(log_sum(score.logits[0]))
        text.tokens.append(token)
    return len(running)


def log_sum(logits: NDArray[np.float32]) -> float:
    """Returns the logarithm of the sum of exp of the logits [V]."""
    largest = logits.max()
    return float(largest + np.log(np.exp(logits - largest).sum(dtype=np.float64)))


def _over(target: Target, text: Writing) -> bool:
    return text.tokens[-1] in target.eos_ids or len(text.tokens) >= text.limit


def _write_shard(corpus: Corpus, texts: Sequence[Writing]) -> None:
    lengths = [len(text.tokens) for text in texts]
    blank: NDArray[np.float16] = np.zeros((1, *texts[0].hidden[0].shape[1:]), np.float16)
    log_sums: list[float] = []
    for text in texts:
        log_sums += [0.0] * (text.prompt - 1) + text.log_sums + [0.0]
    arrays: dict[str, NDArray[Any]] = {
        "tokens": np.array([token for text in texts for token in text.tokens], np.int32),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "prompts": np.array([text.prompt for text in texts], np.int32),
        "indices": np.array([text.index for text in texts], np.int64),
        "temperatures": np.array([text.temperature for text in texts], np.float32),
        "log_sums": np.array(log_sums, np.float32),
        "hidden": np.concatenate([part for text in texts for part in (*text.hidden, blank)]),
    }
    number = len(corpus.shards())
    tensorfile.write(corpus.folder / f"shard-{number:05d}.safetensors", arrays, {"texts": str(len(texts))})
