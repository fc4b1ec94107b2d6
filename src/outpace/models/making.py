"""Drafts and stores made for a target: from names and texts to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.errors import BadModelFile, UsageError, VocabularyMismatch
from outpace.generation import together
from outpace.models.resolving import resolve
from outpace.native.cutting import Cut, cut_down
from outpace.native.gguf import open_gguf
from outpace.native.loading import open_weights
from outpace.native.metadata import brief
from outpace.native.textfile import parse_json
from outpace.text import Text
from outpace.vocabulary import compare

if TYPE_CHECKING:
    from outpace.api import Model


def make_draft(
    source: str | Path,
    target: str | Path,
    out: Path,
    *,
    texts: Sequence[Path] = (),
    tokens: int = 16384,
    bits: int | None = 4,
    layers: Sequence[int] | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Cut:
    """Returns what was written: `source` cut down to draft for `target`.

    texts: files whose most frequent tokens are kept, beside all that end a text; after them, and without texts, the
    lowest ids, which byte-pair encoders learnt first. Raises VocabularyMismatch when the tokens are not the target's,
    UsageError, ModelNotFound, BadModelFile or Unsupported.
    """
    path, target_path = resolve(source), resolve(target)
    with closing(open_gguf(path)) as file, closing(open_weights(target_path)) as whole:
        text = Text.from_weights(file)
        comparison = compare(Text.from_weights(whole).vocabulary, text.vocabulary)
        if not comparison.usable:
            raise VocabularyMismatch(f"{path.name} cannot draft for {target_path.name}: {comparison}")
        vocab_size, endings = file.config.vocab_size, file.config.eos_ids | whole.config.eos_ids
    if not 1 <= tokens <= vocab_size:
        raise UsageError(f"the tokens that a draft keeps must be in [1, {vocab_size}], got {tokens}")
    counts = Counter[int]()
    for line in _lines(texts):
        counts.update(text.encode(line, special=False))
    ranked = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    kept = sorted({*ranked[:tokens], *(token for token in endings if token < vocab_size)})
    name = target_path.name
    return cut_down(path, out, output_ids=kept, bits=bits, layers=layers, target=name, progress=progress)


SIDE_BY_SIDE = 16
"""Answers that are written in the same passes, which read the weights once for all of them."""


def fill_store(
    model: Model,
    prompts: Sequence[Path],
    *,
    max_tokens: int = 128,
    longest_prompt: int = 400,
    progress: Callable[[float], None] = lambda fraction: None,
) -> int:
    """Returns how many greedy answers to the prompts of files joined the store that the model was loaded with.

    Prompts of more than `longest_prompt` tokens are left out. Raises UsageError for a file without a prompt.
    """
    if longest_prompt < 1:
        raise UsageError(f"longest_prompt must be at least 1, got {longest_prompt}")
    asked = list(_lines(prompts))
    short = [one for one in asked if one.strip() and len(model.text.encode(one, special=False)) <= longest_prompt]
    at_once = 1 if hasattr(model.target, "start_ids") else SIDE_BY_SIDE  # an encoder takes one request at a time
    for first in range(0, len(short), at_once):
        some = short[first : first + at_once]
        answers = [model.stream(prompt, max_tokens=max_tokens, drafter="suffix") for prompt in some]
        together(answers, model.target)  # which changes no answer
        progress((first + len(some)) / len(short))
    return len(short)


def _lines(files: Sequence[Path]) -> Iterator[str]:
    """Yields the texts of files: each line, or of JSON lines what stands under "prompt", "text" or "turns"."""
    for path in files:
        empty = True
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        empty = False
                        yield from _texts(line, f"{path}, line {number}") if path.suffix == ".jsonl" else [line]
        except UnicodeDecodeError:
            raise BadModelFile(f"{path}: is not UTF-8") from None
        except OSError as error:
            raise BadModelFile(f"{path}: cannot be read: {error.strerror or error}") from None
        if empty:
            raise UsageError(f"{path}: holds no text")


def _texts(line: str, where: str) -> list[str]:
    record = parse_json(line, where)
    for name in ("prompt", "text", "turns"):
        found = record.get(name)
        if isinstance(found, str):
            return [found]
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found[:1]
    raise BadModelFile(f"{where}: must be an object with a prompt, a text or turns, got {brief(record)}")
