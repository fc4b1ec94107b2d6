"""What a forward pass of a transformer is made of, in numbers: parameters, cached values, operations a row.

A shape knows no weights and no tokenizer. Presets are in presets.toml; `from_config` reads a config.json as
published with a model.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from outpace.errors import UsageError
from outpace.theory import checks

UNGATED = frozenset({"falcon", "gpt_neox", "phi", "starcoder2"})
"""Architectures (`model_type`) whose feed-forward part has two matrices and no gate."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder (or encoder-decoder) transformer; all counts are of the whole model.

    heads, kv_heads: query heads, and heads with keys and values of their own. feed_forward_matrices: 3 with a
    gate, else 2. experts: 0 for a dense model; then expert_size is one expert's feed-forward size and
    experts_per_token those that a token uses; feed_forward_size is that of the first dense_layers layers.
    sliding_window: positions that sliding_layers of the layers look back on (0: none). encoder_layers: above 0
    for an encoder-decoder, whose decoder then also reads keys and values of the source.
    """

    name: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward_size: int
    vocab_size: int
    tied_embeddings: bool = False
    feed_forward_matrices: int = 3
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    shared_expert_size: int = 0
    dense_layers: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    encoder_layers: int = 0

    def __post_init__(self) -> None:
        where = f"of model '{self.name}'"
        for name in ("layers", "hidden_size", "heads", "kv_heads", "head_size", "vocab_size"):
            checks.count(f"{name} {where}", getattr(self, name), 1, "units")
        least = {"feed_forward_size": 0 if self.experts else 1, "feed_forward_matrices": 2}
        for field in fields(self):
            if field.type == "int":
                checks.count(f"{field.name} {where}", getattr(self, field.name), least.get(field.name, 0), "units")
        if self.kv_heads > self.heads:
            raise UsageError(f"kv_heads {where} must be at most heads = {self.heads}, got {self.kv_heads}")
        if self.experts and not (0 < self.experts_per_token <= self.experts and self.expert_size > 0):
            raise UsageError(
                f"a mixture-of-experts model needs experts_per_token in [1, {self.experts}] and an expert_size, "
                f"got {self.experts_per_token} and {self.expert_size} {where}"
            )
        if self.sliding_layers > self.layers or bool(self.sliding_layers) != bool(self.sliding_window):
            raise UsageError(
                f"sliding attention {where} needs a window and up to {self.layers} layers, "
                f"got window {self.sliding_window} and {self.sliding_layers} layers"
            )

    @property
    def attention_parameters(self) -> int:
        """Parameters of one attention block: query, key, value and output projections."""
        return self.hidden_size * self.head_size * 2 * (self.heads + self.kv_heads)

    @property
    def expert_layers(self) -> int:
        """Layers whose feed-forward part is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def shared_parameters(self) -> int:
        """Parameters that every decoder pass reads, whatever its tokens: attention, dense parts, routers, head."""
        # A decoder attending to a source reads that block's query and output; its keys and values are cached.
        cross = 2 * self.hidden_size * self.head_size * self.heads if self.encoder_layers else 0
        attention = self.layers * (self.attention_parameters + cross)
        dense = (self.layers - self.expert_layers) * self._feed_forward(self.feed_forward_size)
        routed = self.expert_layers * (self._feed_forward(self.shared_expert_size) + self.hidden_size * self.experts)
        norms = (2 * self.layers + 1) * self.hidden_size
        return attention + dense + routed + norms + self.vocab_size * self.hidden_size

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert in all its layers."""
        return self.expert_layers * self._feed_forward(self.expert_size)

    @property
    def parameters(self) -> int:
        """All parameters that are held in memory."""
        encoder = self.encoder_layers * (
            self.attention_parameters + self._feed_forward(self.feed_forward_size) + 2 * self.hidden_size
        )
        if self.encoder_layers:
            encoder += (
                self.layers * 2 * self.hidden_size * self.head_size * self.kv_heads
            )  # the source's keys, values
        embedding = 0 if self.tied_embeddings else self.vocab_size * self.hidden_size
        return self.shared_parameters + self.experts * self.expert_parameters + encoder + embedding

    @property
    def active_parameters(self) -> int:
        """Parameters that take part in one decoded token, the output head included, the input embedding not."""
        return self.shared_parameters + self.experts_per_token * self.expert_parameters

    def read_parameters(self, tokens: float) -> float:
        """Returns the parameters that one pass over `tokens` rows reads, in expectation.

        All of them for a dense model. Of E experts with k a token, E (1 - (1 - k/E)^n) are used by n tokens
        that choose evenly: the first rows of a draft are dear in a mixture of experts, the later ones cheap.
        """
        checks.positive("tokens", tokens, "rows")
        if not self.experts:
            return float(self.shared_parameters)
        unused = math.pow(1.0 - self.experts_per_token / self.experts, tokens)
        return self.shared_parameters + self.experts * (1.0 - unused) * self.expert_parameters

    def cached_values(self, context: float, source: float = 0.0) -> float:
        """Returns the numbers in one request's KV cache at `context` positions and a source of `source` tokens.

        2 x kv_heads x head_size a layer and position; a sliding layer keeps its window at most.
        """
        checks.not_negative("context", context, "tokens")
        checks.not_negative("source", source, "tokens")
        width = 2 * self.kv_heads * self.head_size
        seen = (self.layers - self.sliding_layers) * context + self.sliding_layers * min(context, self.sliding_window)
        return width * (seen + (self.layers * source if self.encoder_layers else 0.0))

    def attention_operations(self, context: float, source: float = 0.0) -> float:
        """Returns the operations one row spends on cached positions: 4 x heads x head_size for each it looks at."""
        return 2.0 * self.heads / self.kv_heads * self.cached_values(context, source)

    def _feed_forward(self, size: int) -> int:
        return self.feed_forward_matrices * self.hidden_size * size


def preset(name: str) -> ModelShape:
    """Returns the shape of a well-known model; the name is matched without case.

    Raises UsageError with the closest names when there is none.
    """
    known = presets()
    if name.lower() in known:
        return known[name.lower()]
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}."
    raise UsageError(f"no model preset '{name}': {hint} A config.json works for any other model")


@cache
def presets() -> Mapping[str, ModelShape]:
    """Returns every preset by name, in the order of presets.toml."""
    shapes = {}
    for name, entry in tomllib.loads(files("outpace.theory").joinpath("presets.toml").read_text("utf-8")).items():
        numbers = {key: value for key, value in entry.items() if key not in ("published_parameters", "source")}
        shapes[name] = ModelShape(name=name, **numbers)
    return shapes


def from_config(config: Mapping[str, Any], name: str = "config.json") -> ModelShape:
    """Returns the shape that a model's config.json describes (the field names of Hugging Face transformers).

    Llama, Qwen 2 and 3, Mistral, Mixtral, Gemma, SmolLM and their kin, and T5. A multimodal config's
    `text_config` is used. Raises UsageError that names the missing field.
    """
    config = config.get("text_config", config)
    if not isinstance(config, Mapping):
        raise UsageError(f"{name} must hold an object of fields, got {type(config).__name__}")
    if "d_kv" in config:
        return _from_t5_config(config, name)
    _refuse_unmodelled(config, name)
    family = str(config.get("model_type"))
    heads = _field(config, name, "num_attention_heads")
    hidden = _field(config, name, "hidden_size")
    layers = _field(config, name, "num_hidden_layers")
    experts = _field(config, name, "num_local_experts", "num_experts", "n_routed_experts", default=0)
    size = _field(config, name, "intermediate_size")
    window, sliding = _sliding(config, name, layers)
    return ModelShape(
        name=name,
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=_field(config, name, "num_key_value_heads", default=heads),
        head_size=_field(config, name, "head_dim", default=hidden // max(1, heads)),
        feed_forward_size=size,
        vocab_size=_field(config, name, "vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
        feed_forward_matrices=2 if family in UNGATED else 3,
        experts=experts,
        experts_per_token=_field(config, name, "num_experts_per_tok") if experts else 0,
        expert_size=_field(config, name, "moe_intermediate_size", default=size) if experts else 0,
        shared_expert_size=_field(config, name, "shared_expert_intermediate_size", default=0) if experts else 0,
        dense_layers=_field(config, name, "first_k_dense_replace", default=0) if experts else 0,
        sliding_window=window,
        sliding_layers=sliding,
    )


def _refuse_unmodelled(config: Mapping[str, Any], name: str) -> None:
    if "kv_lora_rank" in config:
        raise UsageError(f"{name} describes latent attention, whose cache is not modelled: give the numbers instead")
    kinds = config.get("layer_types") or ()
    if not isinstance(kinds, list | tuple):
        raise UsageError(f"'layer_types' in {name} must be a list with one entry a layer, got {kinds!r}")
    unknown = sorted({str(kind) for kind in kinds} - {"full_attention", "sliding_attention"})
    if unknown:
        raise UsageError(
            f"{name} has layers of kind {', '.join(unknown)}, whose cost is not modelled: "
            "full_attention and sliding_attention are"
        )


def _from_t5_config(config: Mapping[str, Any], name: str) -> ModelShape:
    heads = _field(config, name, "num_heads")
    encoder_layers = _field(config, name, "num_layers")
    return ModelShape(
        name=name,
        layers=_field(config, name, "num_decoder_layers", default=encoder_layers),
        hidden_size=_field(config, name, "d_model"),
        heads=heads,
        kv_heads=heads,
        head_size=_field(config, name, "d_kv"),
        feed_forward_size=_field(config, name, "d_ff"),
        vocab_size=_field(config, name, "vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
        feed_forward_matrices=3 if str(config.get("feed_forward_proj", "relu")).startswith("gated") else 2,
        encoder_layers=encoder_layers,
    )


def _sliding(config: Mapping[str, Any], name: str, layers: int) -> tuple[int, int]:
    """Returns (window, layers that have it); (0, 0) without one."""
    window = _field(config, name, "sliding_window", default=0)
    if window == 0 or config.get("use_sliding_window") is False:
        return 0, 0
    kinds = config.get("layer_types")
    if kinds is not None:
        sliding = sum(kind == "sliding_attention" for kind in kinds)
    elif "max_window_layers" in config:
        sliding = layers - _field(config, name, "max_window_layers")  # Qwen: the layers above these slide
    elif config.get("model_type") == "gemma2":
        sliding = (layers + 1) // 2  # every other layer, from the first
    else:
        every = _field(config, name, "sliding_window_pattern", "_sliding_window_pattern", default=0)
        sliding = layers - layers // every if every else layers  # the last of each `every` layers sees everything
    return (window, sliding) if sliding else (0, 0)


def _field(config: Mapping[str, Any], where: str, *names: str, default: int | None = None) -> int:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"'{name}' in {where} must be a whole number, got {value!r}")
        return value
    if default is None:
        raise UsageError(f"{where} lacks '{names[0]}': give a complete config.json or one of the presets")
    return default
