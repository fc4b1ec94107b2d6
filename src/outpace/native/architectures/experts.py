"""Mixtures of experts: each token takes a few of a layer's feed-forward parts, by the softmax over those it takes."""

from __future__ import annotations

from dataclasses import replace

from outpace.errors import BadModelFile, Unsupported
from outpace.native.facts import Facts, is_off
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig

KEYS = frozenset(("expert_count", "expert_used_count", "expert_feed_forward_length"))
PANEL_ROWS = 32  # an expert must end where a panel does


def with_experts(facts: Facts, config: ModelConfig) -> ModelConfig:
    """Returns the config with the experts that the facts state, or as it is. Raises BadModelFile or Unsupported."""
    if is_off(facts.get("expert_count")):
        return config
    count = facts.integer("expert_count", "experts")
    used = facts.integer("expert_used_count", "experts")
    if used > count:
        raise BadModelFile(f"{facts.label('expert_used_count')} must be in [1, {count}], got {used}")
    size = facts.integer("expert_feed_forward_length", "ffn_size", config.ffn_size)
    for what, width in (("experts", size), ("hidden states", config.hidden_size)):
        if width % PANEL_ROWS:
            raise Unsupported(f"{what} of a mixture must be a multiple of {PANEL_ROWS} wide, got {width}")
    return replace(config, experts=count, experts_used=used, ffn_size=size)


def join_experts(files: TensorBytes, config: ModelConfig) -> None:
    """Makes one tensor of the experts' own, blk.0.ffn_up.0.weight and so on, where the file has those."""
    for layer in range(config.layers if config.experts else 0):
        for part in ("gate", "up", "down"):
            names = [f"blk.{layer}.ffn_{part}.{expert}.weight" for expert in range(config.experts)]
            if names[0] in files.tensors:
                missing = next((name for name in names if name not in files.tensors), None)
                if missing is not None:
                    raise BadModelFile(f"the tensor {missing!r} is missing")
                files.join(f"blk.{layer}.ffn_{part}_exps.weight", names)
