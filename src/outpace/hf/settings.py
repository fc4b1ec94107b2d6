"""What a call of `generate` asks for, as our loop takes it; what cannot be honoured is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.generation import EosTokenCriteria, MaxLengthCriteria
from transformers.generation.configuration_utils import GenerationMode

from outpace.errors import UsageError
from outpace.processors import Before
from outpace.types import Observation

Row = NDArray[np.float32]

_STATEFUL = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "guidance_scale",
    "ClassifierFreeGuidanceLogitsProcessor": "guidance_scale",
    "SynthIDTextWatermarkLogitsProcessor": "a SynthID watermark",
}
"""Processors that remember earlier calls, or look at other rows: class -> what asks for them."""

_HONOURED = {
    "attention_mask", "position_ids", "use_cache", "cache", "past_key_values", "logits_to_keep", "encoder_outputs",
    "cache_position", "decoder_attention_mask",
}  # fmt: skip


def check(config: Any, model_kwargs: dict[str, Any], processors: Sequence[Any], ids: torch.Tensor) -> None:
    """Raises UsageError, naming all that cannot be honoured."""
    found: list[str] = []
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        found.append(f"{mode.value} (num_beams={config.num_beams})" if config.num_beams != 1 else str(mode.value))
    found += [name for name in ("output_attentions", "output_hidden_states") if getattr(config, name, False)]
    if config.use_cache is False:
        found.append("use_cache=False")
    if getattr(config, "cache_implementation", None) == "quantized":
        found.append("cache_implementation='quantized'")
    if len(ids) > 1:
        found += [name for name in ("output_scores", "output_logits") if _wanted(config, name)]
    for processor in processors:
        kind = type(processor).__name__
        if kind in _STATEFUL:
            found.append(_STATEFUL[kind])
    cache = model_kwargs.get("cache", model_kwargs.get("past_key_values"))
    if cache is not None and cache.get_seq_length() > 0:
        found.append("a cache that holds tokens already")
    found += sorted(name for name, value in model_kwargs.items() if name not in _HONOURED and value is not None)
    if not _usual_positions(model_kwargs, ids):
        found.append("position_ids of one's own")
    if found:
        named = ", ".join(dict.fromkeys(found))  # a model's keywords may say again what the config says
        raise UsageError(f"outpace cannot honour {named}: leave it out, or call outpace.hf.restore(model) first")


def _wanted(config: Any, name: str) -> bool:
    return bool(config.return_dict_in_generate and getattr(config, name, False))


def _usual_positions(model_kwargs: dict[str, Any], ids: torch.Tensor) -> bool:
    positions, mask = model_kwargs.get("position_ids"), model_kwargs.get("attention_mask")
    if positions is None or positions.shape[-1] != ids.shape[1]:
        return True
    if mask is None:
        expected = torch.arange(ids.shape[1], device=ids.device).expand_as(positions)
        return bool(torch.equal(positions, expected))
    expected = mask.long().cumsum(-1) - 1
    return bool(torch.equal(positions[mask.bool()], expected[mask.bool()]))


def rows_of(ids: torch.Tensor, mask: torch.Tensor | None) -> list[tuple[list[int], list[int]]]:
    """Returns each prompt's (padding on its left, own ids). Raises UsageError for padding anywhere else."""
    rows = []
    for i, row in enumerate(ids.tolist()):
        kept = [True] * len(row) if mask is None else mask[i].bool().tolist()
        first = kept.index(True) if True in kept else len(row)
        if first == len(row) or not all(kept[first:]):
            raise UsageError(f"prompt {i} must be padded on the left alone: set padding_side='left'")
        rows.append((row[:first], row[first:]))
    return rows


@dataclass(frozen=True, slots=True)
class Place:
    """A prompt's place in its batch. padding: what stands left of the prompt."""

    row: int
    of: int
    padding: Sequence[int]
    device: torch.device

    def batch(self, part: Any) -> int:
        """Returns how many rows a processor or criterion is shown: all, where it may know its row by its place.

        Those of transformers treat rows alike, but for the ones that were made for the prompts of a batch.
        """
        alike = type(part).__module__.startswith("transformers.") and type(part).__name__ not in _OF_A_BATCH
        return 1 if alike else self.of


_OF_A_BATCH = {
    "RepetitionPenaltyLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor",
    "EncoderNoRepeatNGramLogitsProcessor",
}


class Processors:
    """transformers' logits processors as one of ours: a function of the row and of every token before it.

    They see the prompt as `generate` shows it to them, its padding included.
    """

    def __init__(self, processors: Iterable[Any], place: Place) -> None:
        self._processors = [(processor, place.batch(processor)) for processor in processors]
        self._place = place

    def __call__(self, row: Row, before: Before) -> Row:
        """Returns [V] a new row."""
        place = self._place
        ids = torch.tensor([[*place.padding, *before]], device=place.device)
        scores = torch.tensor(row, device=place.device)[None]
        for processor, batch in self._processors:
            seen = processor(ids.expand(batch, -1), scores.expand(batch, -1))
            scores = seen[place.row if batch > 1 else 0][None]
        processed: Row = scores[0].float().cpu().numpy()
        return processed


class Criteria:
    """transformers' stopping criteria for one prompt; a `Stopper`. They see its tokens one by one, and no scores."""

    def __init__(self, criteria: Iterable[Any], before: Sequence[int], place: Place) -> None:
        self._ids = list(before)
        self._place = place
        self._ends: set[int] = set()
        self._others = []
        for one in criteria:
            if isinstance(one, EosTokenCriteria):
                self._ends |= set(one.eos_token_id.flatten().tolist())
            elif not isinstance(one, MaxLengthCriteria):  # the round's limit
                self._others.append(one)

    def __call__(self, token: int) -> str | None:
        self._ids.append(token)
        stops = token in self._ends
        if self._others:
            ids = torch.tensor([self._ids], device=self._place.device)
            stops |= any(self._says(one, ids) for one in self._others)
        return "stop" if stops else None

    def _says(self, criterion: Any, ids: torch.Tensor) -> bool:
        batch = self._place.batch(criterion)
        said = torch.as_tensor(criterion(ids.expand(batch, -1), None)).flatten()
        return bool(said[self._place.row if len(said) > 1 else 0])


class Collected:
    """The logits of each emitted token, before and after the processors; an observer."""

    def __init__(self, processors: Processors | None, device: torch.device) -> None:
        self._processors, self._device = processors, device
        self.logits: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []

    def __call__(self, seen: Observation) -> None:
        step = seen.step
        path = step.verdict.path
        for i, row in enumerate((0, *(node + 1 for node in path))[: len(step.tokens)]):
            logits = np.array(seen.scores.logits[row], np.float32)
            before = Before(seen.committed, [step.draft.tokens[node] for node in path[:i]])
            scores = logits if self._processors is None else self._processors(logits, before)
            self.logits.append(torch.tensor(logits, device=self._device)[None])
            self.scores.append(torch.tensor(scores, device=self._device)[None])
