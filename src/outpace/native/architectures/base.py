"""What tells one decoder of the Llama family from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outpace.native.facts import Facts
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig


def as_it_is(facts: Facts, config: ModelConfig) -> ModelConfig:
    return config


def nothing(files: TensorBytes, config: ModelConfig) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Architecture:
    """name: general.architecture of a GGUF file. model_types: those of a config.json.

    configure: from the common decoder that the facts describe (facts are under GGUF's names, whatever the file) to
    this one. keys: that it reads beyond the common ones. interleaved: rotary pairs are (2i, 2i + 1) in GGUF.
    layer_tensors: names inside a layer, of safetensors -> of GGUF, beyond Llama's or instead of them.
    arrange: cuts and joins tensors that the file holds in another way. norm_offset: what safetensors leave out of the
    weights of norms.
    """

    name: str
    model_types: tuple[str, ...]
    configure: Callable[[Facts, ModelConfig], ModelConfig] = as_it_is
    keys: frozenset[str] = frozenset()
    interleaved: bool = False
    layer_tensors: Mapping[str, str] = field(default_factory=dict)
    arrange: Callable[[TensorBytes, ModelConfig], None] = nothing
    norm_offset: float = 0.0
