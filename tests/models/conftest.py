"""An empty cache, a catalogue of one model, a hub on this machine."""

from __future__ import annotations

import hashlib
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_hub import BODY, Hub, Offer

from outpace import models
from outpace.models import pulling


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
