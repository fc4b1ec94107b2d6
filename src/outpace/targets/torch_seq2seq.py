"""Any encoder-decoder of `transformers` as a target: T5, BART, mBART, Marian, Whisper.

The encoder runs once, when a session opens, and its keys and values for cross-attention are made in the first pass
and kept; the decoder's own cache is rewound as a causal model's is. These decoders number positions by the rows of a
pass, so chains are drafted, not trees, and each request has a pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from outpace.errors import Unsupported, UsageError
from outpace.targets.torch_cache import KeyValues, PassCache
from outpace.targets.torch_causal import TorchSession, TorchTarget
from outpace.targets.torch_masks import Token, rows_of
from outpace.targets.torch_models import decoder_layers, explained
from outpace.targets.torch_packing import dense
from outpace.targets.torch_static import Outputs
from outpace.types import Draft, Prompt


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What an encoder made of a source: states [1, positions, H], and for ids which of them are no padding, or None.

    encoder: the module that made it; a relative that shares it can use the states.
    """

    states: torch.Tensor
    mask: torch.Tensor | None
    encoder: torch.nn.Module


@dataclass(slots=True, eq=False)
class SourcedKeyValues(KeyValues):
    """One request's keys and values of the decoder, and those of its source."""

    encoded: Encoded | None = None
    cross: DynamicCache = field(default_factory=DynamicCache)


class TorchSeq2Seq(TorchTarget):
    """An encoder-decoder of transformers; a Target. `Prompt.ids` begin with the decoder's start token.

    `Prompt.source`: ids of the encoder, features [frames, channels], or what an equal encoder made of them.
    folder: where the model came from, with what says how its features are made.
    """

    def __init__(self, model: Any, name: str, *, context: int | None = None) -> None:
        if not model.config.is_encoder_decoder:
            raise Unsupported(f"{type(model).__name__} has no encoder: it is a target for `TorchTarget`")
        self.folder: Path | None = None
        self.takes_features = model.main_input_name == "input_features"
        self._cache_name = "cache" if "cache" in model.forward.__annotations__ else "past_key_values"
        self._last: tuple[Any, Encoded] | None = None
        self._compared: tuple[torch.nn.Module, bool] | None = None
        super().__init__(model, name, context=context)

    @property
    def start_ids(self) -> tuple[int, ...]:
        """What every decoder prompt begins with."""
        generation = self.model.generation_config
        start = generation.decoder_start_token_id
        if start is None:
            start = self.model.config.decoder_start_token_id
        forced = getattr(generation, "forced_bos_token_id", None)
        return (int(start),) if forced is None else (int(start), int(forced))

    def speech_start(self, language: str = "en", task: str = "transcribe") -> tuple[int, ...]:
        """Returns what a Whisper prompt begins with: language, task, and that no times are wanted.

        Raises UsageError for a language or task that the model does not know, Unsupported for another model.
        """
        if not self.takes_features:
            raise Unsupported(f"{self.name} reads text: audio is for Whisper")
        generation = self.model.generation_config
        first = [*self.start_ids[:1]]
        for name, wanted, known in (
            ("language", f"<|{language}|>", getattr(generation, "lang_to_id", None) or {}),
            ("task", task, getattr(generation, "task_to_id", None) or {}),
        ):
            if known and wanted not in known:
                listed = ", ".join(sorted(one.strip("<|>") for one in known))
                raise UsageError(f"{name} must be one of {listed}, got {wanted.strip('<|>')!r:.40}")
            first += [known[wanted]] if known else []
        no_times = getattr(generation, "no_timestamps_token_id", None)
        return (*map(int, first), *(() if no_times is None else (int(no_times),)))

    @property
    def withheld(self) -> tuple[int, ...]:
        """Tokens that the model's makers never let it say."""
        return tuple(map(int, getattr(self.model.generation_config, "suppress_tokens", None) or ()))

    def takes_encoded(self, encoded: Any) -> bool:
        """Whether another target's encoder output serves here: its encoder is ours, or equal in every weight."""
        if not isinstance(encoded, Encoded):
            return False
        if self._compared is None or self._compared[0] is not encoded.encoder:
            self._compared = encoded.encoder, _equal(encoded.encoder, self.model.get_encoder())
        return self._compared[1]

    def encode(self, source: Any) -> Encoded:
        """Returns what the encoder makes of a source. Raises UsageError for one that the model cannot read."""
        if isinstance(source, Encoded):
            return source
        if source is None or len(source) == 0:
            raise UsageError(f"{self.name} is an encoder-decoder: the prompt needs a source")
        if self._last is not None and self._last[0] is source:  # further choices of one prompt
            return self._last[1]
        encoder = self.model.get_encoder()
        with torch.inference_mode(), explained(self.name, self.model):
            if self.takes_features:
                features = torch.from_numpy(np.ascontiguousarray(source, np.float32)).T[None]
                states = encoder(features.to(self.device, self.model.dtype)).last_hidden_state
            else:
                ids = torch.tensor([list(source)], device=self.device)
                rows = self.model.get_input_embeddings().weight.shape[0]
                if not 0 <= int(ids.min()) <= int(ids.max()) < rows:
                    raise UsageError(f"source ids must be in [0, {rows}), got {int(ids.min())} to {int(ids.max())}")
                states = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        encoded = Encoded(states, None, encoder)
        self._last = (source, encoded)
        return encoded

    def cut_down(self, layers: int) -> TorchSeq2Seq:
        """Returns the same model with the decoder's first `layers` alone; it shares encoder and weights.

        A draft that costs what its layers cost. Raises UsageError unless layers is in [1, all but one].
        """
        every = decoder_layers(self.model)
        if not 1 <= layers < len(every):
            raise UsageError(f"layers must be in [1, {len(every)}), got {layers}")
        return _Cut(self, layers)

    def keep(self, session: TorchSession) -> None:
        """Forgets the cache: another source gives other states for the same tokens."""

    def sample(self, ids: Sequence[int]) -> Prompt:
        if self.takes_features:
            config = self.model.config
            frames = 2 * config.max_source_positions
            return Prompt(tuple(ids), np.zeros((frames, config.num_mel_bins), np.float32))
        return Prompt(tuple(ids), (*ids, *ids))

    def _prepare(self) -> bool:
        return False

    def _begin(self, prompt: Prompt, taps: tuple[int, ...]) -> KeyValues:
        return SourcedKeyValues(encoded=self.encode(prompt.source))

    def _encoded(self, held: KeyValues) -> Any:
        return cast(SourcedKeyValues, held).encoded

    def _pass(
        self,
        held: Sequence[KeyValues],
        drafts: Sequence[Draft],
        last: Sequence[Token],
        taps: tuple[int, ...],
        logits: bool,
    ) -> Outputs:
        [one], [draft] = held, drafts
        if not draft.is_chain:
            raise UsageError(f"{self.name} scores chains, got a tree: use a drafter of chains")
        if taps:
            raise UsageError(f"{self.name} offers no hidden states: use a drafter that needs none")
        own = cast(SourcedKeyValues, one)
        assert own.encoded is not None
        cache = PassCache([own], [len(draft) + 1])
        how: dict[str, Any] = {
            "decoder_input_ids": rows_of(drafts, last, self.device),
            "encoder_outputs": BaseModelOutput(last_hidden_state=own.encoded.states),
            "attention_mask": own.encoded.mask,
            self._cache_name: EncoderDecoderCache(cache, own.cross),
            "use_cache": True,
        }
        out = self._run(how)
        if cache.seen == 0:
            raise Unsupported(f"{self.name}: the model does not use the cache that it is given: nothing rewinds it")
        return out.logits, None

    def _run(self, how: dict[str, Any]) -> Any:
        return self.model(**how)


def _equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Whether two encoders have the same weights, as a distilled model and its teacher may."""
    if a is b:
        return True
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(dense(ours[name]), dense(theirs[name])) for name in ours)


class _Cut(TorchSeq2Seq):
    """The first layers of another target's decoder."""

    def __init__(self, whole: TorchSeq2Seq, layers: int) -> None:
        self._layers = layers
        super().__init__(whole.model, f"{whole.name}-{layers}-layers", context=whole.max_length)
        share = layers / len(decoder_layers(whole.model))
        self.weight_bytes = int(whole.weight_bytes * share)

    def _run(self, how: dict[str, Any]) -> Any:
        decoder = self.model.get_decoder()
        name = "layers" if hasattr(decoder, "layers") else "block"
        every = getattr(decoder, name)
        setattr(decoder, name, every[: self._layers])
        try:
            return self.model(**how)
        finally:
            setattr(decoder, name, every)
