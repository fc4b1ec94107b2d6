"""What a user calls a model -> its file or folder."""

from __future__ import annotations

import os
from pathlib import Path

from outpace.errors import ModelNotFound
from outpace.models.catalogue import catalogue, unknown
from outpace.models.hub import HUB_ID, Progress
from outpace.models.pulling import cached_from_hub, pull
from outpace.models.store import path
from outpace.native.metadata import quoted


def resolve(
    name_or_path: str | os.PathLike[str], *, allow_pull: bool = True, progress: Progress | None = None
) -> Path:
    """Returns the file or folder of a model.

    name_or_path: a GGUF file, a folder with safetensors and config.json, a name of the catalogue, or an id of the
    hub (owner/name or owner/name:quant). allow_pull: fetch what is not on this machine; progress is called with
    (bytes done, bytes in all). Raises ModelNotFound, with the remedy.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise ModelNotFound(f"a model is a name or a path, got {name_or_path!r:.40}")
    name = os.fspath(name_or_path)
    if not name or "\0" in name:
        raise ModelNotFound(f"{quoted(name)} is no name of a model")
    given = os.path.expanduser(name)
    if name not in catalogue() and os.path.exists(given):
        return Path(given)
    if name in catalogue():
        return pull(name, progress) if allow_pull else path(name)
    found = HUB_ID.fullmatch(name)
    if found is None or name.endswith((".gguf", ".safetensors")):
        if "/" in name or name.endswith(".gguf"):
            raise ModelNotFound(f"{name:.200}: no such file or folder")
        raise unknown(name)
    if allow_pull:
        return pull(name, progress)
    cached = cached_from_hub(found["repository"], found["quant"])
    if cached is None:
        raise ModelNotFound(f"{name} is not on this machine: outpace models pull {name}")
    return cached
