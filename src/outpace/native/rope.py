"""Rotary positions as files describe them: plain, or stretched for contexts longer than those first trained on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from outpace.errors import BadModelFile, Unsupported
from outpace.native.facts import Facts, checked_positive, is_off
from outpace.native.metadata import brief
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig, Rope

KEYS = frozenset((
    "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
))  # fmt: skip
KINDS = ("linear", "llama3", "longrope")
SLIGHTEST, STRONGEST = 1e-3, 1e6
"""What a frequency may be divided by: beyond these no model is, and sines of huge angles mean nothing."""


def with_rope(facts: Facts, config: ModelConfig) -> ModelConfig:
    """Returns the config with the rotations that the facts state, and the context that these are right for.

    Raises BadModelFile, or Unsupported for a way of stretching that is not known.
    """
    theta = facts.number("rope.freq_base", 10000.0)
    kind = facts.text("rope.scaling.type")
    stated = (facts.get(f"rope.{name}") for name in ("scaling.factor", "scale_linear"))
    factor = next((value for value in stated if not is_off(value)), 1.0)
    if kind in (None, "default"):
        kind = None if isinstance(factor, (int, float)) and factor == 1 else "linear"
    if kind is None:
        return replace(config, rope=Rope(theta))
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise Unsupported(f"scaled rotary positions of the kind {brief(kind)} are not supported; {known} are")
    if kind == "longrope":
        return _longrope(facts, config, theta)
    factor = _checked_divisor(factor, facts.label("rope.scaling.factor"))
    half = config.head_dim // 2
    divisors = (factor,) * half if kind == "linear" else _llama3(facts, theta, config.head_dim, factor)
    return replace(config, rope=Rope(theta, divisors))


def _checked_divisor(value: object, name: str) -> float:
    divisor = checked_positive(value, name)
    if not SLIGHTEST <= divisor <= STRONGEST:
        raise BadModelFile(f"{name} must be in [{SLIGHTEST:g}, {STRONGEST:.0f}], got {brief(value)}")
    return divisor


def _llama3(facts: Facts, theta: float, head_dim: int, factor: float) -> tuple[float, ...]:
    """Returns what Llama 3.1 divides its frequencies by: slow ones by `factor`, fast ones by 1, and between."""
    low, high = (facts.number(f"rope.scaling.{name}_freq_factor") for name in ("low", "high"))
    original = facts.integer("rope.scaling.original_context_length", "context_length")
    if not low < high:
        raise BadModelFile(f"low_freq_factor must be under high_freq_factor, got {low} and {high}")
    turns = original * theta ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return tuple((1 / ((1 - smooth) / factor + smooth)).tolist())


def _longrope(facts: Facts, config: ModelConfig, theta: float) -> ModelConfig:
    """Returns the config within the original context: what is cached cannot be turned again when that is passed."""
    short, half = facts.get("rope.scaling.short_factor"), config.head_dim // 2
    if not isinstance(short, list) or len(short) != half:
        raise BadModelFile(f"{facts.label('rope.scaling.short_factor')} must be {half} numbers, got {brief(short)}")
    divisors = tuple(_checked_divisor(value, facts.label("rope.scaling.short_factor")) for value in short)
    return _within_original(facts, replace(config, rope=Rope(theta, divisors)))


def _within_original(facts: Facts, config: ModelConfig) -> ModelConfig:
    name = "rope.scaling.original_context_length"
    original = facts.integer(name, "context_length", config.context_length)
    stretch = max(1.0, config.context_length / original)
    expected = math.sqrt(1 + math.log(stretch) / math.log(original)) if original > 1 else 1.0
    scale = facts.number("rope.scaling.attn_factor", expected)
    context = min(config.context_length, original)
    return replace(config, rope=replace(config.rope, scale=scale), context_length=context)


def take_divisors(facts: Facts, files: TensorBytes, config: ModelConfig) -> ModelConfig:
    """Returns the config with the divisors that a file holds as tensors, which are no weights and are dropped."""
    if "rope_freqs.weight" in files.tensors:
        config = replace(config, rope=replace(config.rope, divisors=_divisors(files, "rope_freqs.weight", config)))
    short, long = ("rope_factors_short.weight", "rope_factors_long.weight")
    if short in files.tensors and long in files.tensors:
        divisors = _divisors(files, short, config)
        files.drop(long)
        config = _within_original(facts, replace(config, rope=replace(config.rope, divisors=divisors)))
    return config


def _divisors(files: TensorBytes, name: str, config: ModelConfig) -> tuple[float, ...]:
    info, half = files.tensors[name], config.head_dim // 2
    if (info.format, info.rows, info.cols) != ("F32", 1, half):
        raise BadModelFile(f"{name} must be {half} numbers in F32, got {info.rows} x {info.cols} in {info.format}")
    values = files.read(name, 0, 1).view("<f4")
    files.drop(name)
    if not ((values >= SLIGHTEST) & (values <= STRONGEST)).all():
        raise BadModelFile(f"{name} holds a number outside [{SLIGHTEST:g}, {STRONGEST:.0f}]")
    return tuple(values.tolist())
