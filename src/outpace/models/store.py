"""The models on this machine: in our cache, in the folder OUTPACE_MODELS, in an installed package."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from outpace.errors import ModelNotFound, UsageError
from outpace.models.catalogue import CatalogueModel, catalogue, named


def cache_folder() -> Path:
    """Returns where pulled models are kept."""
    return Path(platformdirs.user_cache_dir("outpace")) / "models"


def hub_folder(repository: str) -> Path:
    """Returns where the files of a repository of the hub are kept."""
    return cache_folder() / "hub" / repository.replace("/", "--")


def search_folders() -> list[Path]:
    """Returns the folders that are looked through for model files: the cache, then OUTPACE_MODELS."""
    extra = os.environ.get("OUTPACE_MODELS", "")
    return [cache_folder(), *(Path(os.path.expanduser(folder)) for folder in extra.split(os.pathsep) if folder)]


def locate(model: CatalogueModel) -> Path | None:
    """Returns the model's file on this machine, or None; a file of another size is not it."""
    places = [folder / model.file for folder in search_folders()]
    places += [folder / model.file for source in model.sources for folder in _package_folders(source.package)]
    for place in places:
        try:
            if place.is_file() and place.stat().st_size == model.size:
                return place
        except OSError:
            continue
    return None


def _package_folders(package: str) -> list[Path]:
    """Returns the folders of an installed package, without importing it."""
    if not package:
        return []
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def path(name: str) -> Path:
    """Returns the file of a catalogue model that is on this machine. Raises ModelNotFound, with the remedy."""
    found = locate(named(name))
    if found is None:
        raise ModelNotFound(f"{name} is not on this machine: outpace models pull {name}")
    return found


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that is known by name, or was pulled from the hub. path: None when it is not on this machine."""

    name: str
    title: str
    licence: str
    size: int
    path: Path | None


def list_models() -> list[Listed]:
    """Returns the catalogue, then what was pulled from the hub besides."""
    listed = [
        Listed(model.name, model.title, model.licence, model.size, locate(model)) for model in catalogue().values()
    ]
    hub = cache_folder() / "hub"
    for folder in sorted(hub.iterdir()) if hub.is_dir() else []:
        if folder.is_dir() and "--" in folder.name and not folder.name.startswith("."):
            files = [file for file in folder.iterdir() if file.is_file()]
            size = sum(file.stat().st_size for file in files)
            name = folder.name.replace("--", "/", 1)
            listed.append(Listed(name, ", ".join(sorted(f.name for f in files if _is_weights(f))), "", size, folder))
    return listed


def _is_weights(file: Path) -> bool:
    return file.suffix in (".gguf", ".safetensors")


def remove(name: str) -> Path:
    """Removes a pulled model from the cache and returns what was removed.

    Raises ModelNotFound when it is not there, UsageError when it lies outside the cache: we did not put it there.
    """
    if "/" in name:
        folder = hub_folder(name.partition(":")[0])
        if not os.path.isdir(folder) or folder.parent != cache_folder() / "hub":
            raise ModelNotFound(f"{name} is not in the cache")
        shutil.rmtree(folder)
        return folder
    found = path(name)
    if found.parent != cache_folder():
        raise UsageError(f"{name} is at {found}, outside our cache: remove it there if you mean to")
    found.unlink()
    return found
