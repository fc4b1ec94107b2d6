"""Whether a folder holds a head that others have published, told from its config and the names of its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpace.errors import MissingExtra
from outpace.types import Target

EAGLE, EAGLE3, MEDUSA = "eagle", "eagle3", "medusa"

LARGEST_HEADER = 100 << 20
"""Bytes that the header of a safetensors file may have."""


def published_kind(folder: Path) -> str | None:
    """Returns "eagle" (1 and 2), "eagle3", "medusa", what a config of `speculators` names, or None for a model.

    EAGLE's authors publish a Llama's config of one layer: the fusion layer among the tensors tells it from a model.
    """
    config = read_config(folder)
    if "speculators_model_type" in config:
        return str(config["speculators_model_type"])
    if "medusa_num_heads" in config:
        return MEDUSA
    if "draft_vocab_size" in config or "Eagle3" in str(config.get("architectures")):
        return EAGLE3
    if config.get("num_hidden_layers") == 1 and _has_fusion(folder):
        return EAGLE
    return None


def published_head(folder: Path, target: Target) -> Any:
    """Returns the head of a folder beside the target, as the draft of a model; None where the folder holds a model.

    Raises MissingExtra without PyTorch, UsageError beside another engine, ModelError for a head that does not fit.
    """
    if published_kind(folder) is None:
        return None
    try:
        from outpace.heads import published_file, published_layers
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "safetensors"):
            raise
        raise MissingExtra("a published head", "torch") from None
    return published_layers.run_on(published_file.read_published(folder), target)


def read_config(folder: Path) -> Mapping[str, Any]:
    """Returns the object in config.json; an empty one where there is none that can be read."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _has_fusion(folder: Path) -> bool:
    file = folder / "model.safetensors"
    if not file.is_file():
        return (
            folder / "pytorch_model.bin"
        ).is_file()  # models come as safetensors here, EAGLE's heads mostly do not
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        text = opened.read(length) if length <= LARGEST_HEADER else b""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(names, dict) and "fc.weight" in names
