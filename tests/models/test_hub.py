"""Pulling from a hub: the right file, checked, resumed, with the token where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors_writer import tiny_folder
from small_hub import BODY, Hub, Offer, left_in_cache

from outpace import models
from outpace.errors import ModelNotFound
from outpace.models.store import cache_folder


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
