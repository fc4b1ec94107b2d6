"""Pulling: from wheels through pip and from a hub, whole or not at all. Everything comes from this machine."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors_writer import tiny_folder

from gguf_writer import Tiny, tiny_model
from outpace import models
from outpace.errors import ModelNotFound, OutpaceError, UsageError
from outpace.models import pulling, wheels
from outpace.models.store import cache_folder

Offer = Callable[..., None]
BODY = bytes(range(256)) * 400


@pytest.fixture(autouse=True)
def lonely(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, no index, no hub."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("OUTPACE_MODELS", "HF_TOKEN", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(pulling.hub, "_RETRIES", 2)
    monkeypatch.setattr(pulling.hub.time, "sleep", lambda seconds: None)


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


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Offer]:
    """Makes `tiny`, from the given sources, the only model of the catalogue."""
    module = sys.modules["outpace.models.catalogue"]

    def write(*sources: str, body: bytes = BODY) -> None:
        entry = f'name = "tiny"\ntitle = "Tiny"\nlicence = "MIT"\nfile = "tiny.gguf"\nsize = {len(body)}\n'
        entry += f'sha256 = "{hashlib.sha256(body).hexdigest()}"\nsources = [{", ".join(sources)}]\n'
        (tmp_path / "catalogue.toml").write_text("[[model]]\n" + entry)
        monkeypatch.setattr(module, "_FILE", tmp_path / "catalogue.toml")
        models.catalogue.cache_clear()

    yield write
    models.catalogue.cache_clear()


def left_in_cache() -> list[str]:
    """Returns the files in the cache, locks aside."""
    return sorted(str(f.relative_to(cache_folder())) for f in cache_folder().rglob("*") if f.suffix != ".lock")


WHEEL = '{kind = "wheel", requirement = "tiny-model==1.0", package = "nobody_has_this"}'


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
    with pytest.raises(ModelNotFound, match=r"wheel tiny-model==1\.0: its SHA-256 is \w{64}, expected \w{64}"):
        models.pull("tiny")
    assert left_in_cache() == []


def test_wheel_that_unpacks_to_more_is_cut_off(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_wheel(tmp_path / "links", "tiny_model", bytes(50_000_000))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    offer(WHEEL)
    with pytest.raises(ModelNotFound, match="holds more than the 102400 bytes"):
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
    with pytest.raises(ModelNotFound, match=r"cannot be unpacked|SHA-256") as caught:
        models.pull("tiny")
    assert "\n" not in str(caught.value)


def test_nothing_cached_and_no_network_is_one_sentence(offer: Offer) -> None:
    offer(WHEEL, '{kind = "hub", repository = "owner/tiny"}')
    with pytest.raises(ModelNotFound) as caught:
        models.pull("tiny")
    text = str(caught.value)
    assert text.startswith("tiny is not on this machine and could not be fetched (wheel tiny-model==1.0: pip: ")
    assert "No matching distribution" in text
    assert "127.0.0.1 cannot be reached" in text
    assert "\n" not in text
    with pytest.raises(ModelNotFound, match="outpace models pull tiny"):
        models.resolve("tiny", allow_pull=False)


def test_missing_pip_is_named_with_its_remedy(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    offer(WHEEL)
    with pytest.raises(ModelNotFound, match=r"pip is not installed for .* -m ensurepip"):
        models.pull("tiny")


def test_installed_package_is_used_in_place(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / "tiny_installed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(BODY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    offer('{kind = "wheel", requirement = "x==1", package = "tiny_installed"}')
    assert models.pull("tiny") == package / "tiny.gguf"
    with pytest.raises(UsageError, match="outside our cache"):
        models.remove("tiny")


def test_outpace_models_names_another_folder(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(BODY)
    monkeypatch.setenv("OUTPACE_MODELS", str(tmp_path))
    offer(WHEEL)
    assert models.resolve("tiny") == tmp_path / "tiny.gguf"
    (tmp_path / "tiny.gguf").write_bytes(BODY[:-1])
    with pytest.raises(ModelNotFound):
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
    with pytest.raises(OutpaceError, match=r"tiny needs 0\.00 GB in .*, 0\.00 GB are free"):
        models.pull("tiny")


def test_disk_that_fills_up_leaves_nothing(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(WHEEL)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wheels, "fetch", full)
    with pytest.raises(OutpaceError, match="the disk is full; nothing was kept"):
        models.pull("tiny")
    assert left_in_cache() == []


def test_leftovers_of_a_killed_pull_are_swept(offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stale = cache_folder() / ".pull-tiny-dead"
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
    with pytest.raises(ModelNotFound, match="outpace models pull tiny"):
        models.remove("tiny")


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub in miniature. files: path -> bytes; `cuts`: how many downloads break off in the middle."""

    files: dict[str, bytes]
    cuts: int
    asked: list[tuple[str, str | None, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        if self.path.startswith("/api/models/owner/name/"):
            siblings = [
                {"rfilename": n, "size": len(b), "lfs": {"sha256": hashlib.sha256(b).hexdigest(), "size": len(b)}}
                for n, b in self.files.items()
            ]
            self._send(json.dumps({"siblings": siblings}).encode())
        elif self.path.startswith("/owner/name/resolve/main/"):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/cdn/{self.path[25:]}")
            self.end_headers()
        elif self.path.startswith("/cdn/") and self.path[5:] in self.files:
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self._send(self.files[self.path[5:]][start:], 206 if start else 200)
        else:
            self.send_error(404)

    def _send(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/cdn/") and type(self).cuts:
            type(self).cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    class Handler(Hub):
        files = {  # noqa: RUF012
            "name-q8_0.gguf": b"eight" * 1000,
            "name-q4_k_m.gguf": BODY,
            "../../evil.gguf": b"evil",
            "README.md": b"hello",
        }
        cuts = 0
        asked: list[tuple[str, str | None, str | None]] = []  # noqa: RUF012

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_hub_id_brings_the_preferred_quantisation(hub: type[Hub]) -> None:
    pulled = models.resolve("owner/name")
    assert pulled == cache_folder() / "hub" / "owner--name" / "name-q4_k_m.gguf"
    assert pulled.read_bytes() == BODY
    hub.asked.clear()
    assert models.resolve("owner/name") == pulled
    assert hub.asked == []  # what is cached needs no network


def test_hub_id_with_a_quantisation_brings_that_file(hub: type[Hub]) -> None:
    assert models.pull("owner/name:Q8_0").read_bytes() == b"eight" * 1000
    with pytest.raises(ModelNotFound, match=r"has not a Q2_K file; it has name-q8_0\.gguf, name-q4_k_m\.gguf"):
        models.pull("owner/name:Q2_K")


def test_token_goes_to_the_endpoint_alone(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    models.pull("owner/name:Q8_0")
    assert {path: auth for path, auth, _ in hub.asked} == {
        "/api/models/owner/name/revision/main?blobs=true": "Bearer secret",
        "/owner/name/resolve/main/name-q8_0.gguf": "Bearer secret",
        "/cdn/name-q8_0.gguf": None,
    }


def test_broken_connection_is_resumed(hub: type[Hub]) -> None:
    hub.cuts = 2
    assert models.pull("owner/name").read_bytes() == BODY
    assert [r for path, _, r in hub.asked if path.startswith("/cdn/")] == [None, "bytes=51200-", "bytes=76800-"]


def test_changed_bytes_from_the_hub_are_not_kept(offer: Offer, hub: type[Hub]) -> None:
    offer('{kind = "hub", repository = "owner/name"}')
    hub.files["tiny.gguf"] = BODY[:-1] + b"x"
    with pytest.raises(ModelNotFound, match="its SHA-256 is"):
        models.pull("tiny")
    hub.files["tiny.gguf"] = BODY + b"x"
    with pytest.raises(ModelNotFound, match="is longer than the 102400 bytes"):
        models.pull("tiny")
    assert left_in_cache() == []
    hub.files["tiny.gguf"] = BODY
    assert models.pull("tiny").read_bytes() == BODY


def test_repository_of_safetensors_becomes_a_folder(hub: type[Hub], tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf", shards=2)
    hub.files = {file.name: file.read_bytes() for file in folder.iterdir()}
    pulled = models.pull("owner/name")
    assert {f.name: f.read_bytes() for f in pulled.iterdir()} == hub.files
    assert models.resolve("owner/name", allow_pull=False) == pulled
    assert models.list_models()[-1].name == "owner/name"
    models.remove("owner/name")
    assert not pulled.exists()


def test_absent_repository_is_one_sentence(hub: type[Hub]) -> None:
    with pytest.raises(ModelNotFound, match=r"^owner/other: there is no such repository or file \(HTTP 404\)$"):
        models.pull("owner/other")


def test_offline_is_honoured(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE forbids the hub"):
        models.pull("owner/name")
    assert hub.asked == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2", "no model is called 'smollm2': did you mean smollm2-135m"),
        ("whatever", "the catalogue has smollm2-135m, "),
        ("models/absent.gguf", r"models/absent\.gguf: no such file"),
        ("/absent/folder", "/absent/folder: no such file or folder"),
        ("../x/../y", "no such file or folder"),
        ("", "is no name of a model"),
        ("a\0b", "is no name of a model"),
    ],
)
def test_names_that_are_nothing_are_refused(name: str, message: str) -> None:
    with pytest.raises(ModelNotFound, match=message):
        models.resolve(name)


def test_files_and_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    assert models.resolve(path) == models.resolve(str(path)) == path
    assert models.resolve(tmp_path) == tmp_path


def test_every_model_of_the_catalogue_is_complete() -> None:
    for name, model in models.catalogue().items():
        assert name == model.name
        assert len(model.sha256) == 64
        assert model.size > 1e6
        assert model.licence
        assert {source.kind for source in model.sources} <= {"hub", "wheel", "parts"}
        assert all("{" not in requirement for source in model.sources for requirement in source.requirements)


def test_drafts_say_which_can_and_why_others_cannot(tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target.gguf", Tiny("qwen2", vocab_size=352, tied=False))
    tiny_model(tmp_path / "small.gguf", Tiny(layers=1))
    tiny_model(tmp_path / "large.gguf", Tiny(layers=9))
    tiny_model(tmp_path / "other.gguf", **{"tokenizer.ggml.tokens": [f"t{i}" for i in range(320)]})
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    choices = {choice.name: choice for choice in models.drafts_for(target)}
    assert choices["small.gguf"].usable
    assert choices["small.gguf"].reason.startswith("same vocabulary, ")
    reasons = {name: choice.reason for name, choice in choices.items() if not choice.usable}
    assert reasons["large.gguf"] == "same vocabulary, but not smaller than target.gguf"
    assert "id 3 is 'Ā' in the target, 't3' in the draft" in reasons["other.gguf"]
    assert "the version at byte 4" in reasons["broken.gguf"]
    assert reasons["qwen2.5-coder-0.5b"] == "not on this machine: outpace models pull qwen2.5-coder-0.5b"
    assert "target.gguf" not in choices
