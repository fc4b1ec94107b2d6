"""Where a model is on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from outpace.errors import ModelNotFound

_FILES = {
    "smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
}


def path(name: str) -> Path:
    """Returns the file of a catalogue model that is on this machine. Raises ModelNotFound."""
    folders = [Path(platformdirs.user_cache_dir("outpace")) / "models"]
    if extra := os.environ.get("OUTPACE_MODELS"):
        folders.append(Path(extra).expanduser())
    for folder in folders:
        if name in _FILES and (folder / _FILES[name]).is_file():
            return folder / _FILES[name]
    raise ModelNotFound(f"{name} is not on this machine: outpace models pull {name}")


def resolve(name_or_path: str | Path) -> Path:
    """Returns the model's file or folder."""
    found = Path(name_or_path)
    return found if found.exists() else path(str(name_or_path))
