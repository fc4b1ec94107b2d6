"""Pulling from a hub: the right file, checked, resumed, with the token where it belongs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusals import refused
from safetensors_writer import tiny_folder
from small_hub import BODY, Hub, Offer, left_in_cache

from outpace import models
from outpace.errors import ModelNotFound
from outpace.models import pulling
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


WANTED = "one of Q4_K_M, Q8_0, Q4_0, Q4_1, Q5_0, Q6_K, BF16, F16, F32"


@pytest.mark.parametrize(
    ("files", "name", "line"),
    [
        (
            ["a-q8_0.gguf", "b.gguf"],
            "owner/name:Q2_K",
            "a single GGUF file that is Q2_K, and it has a-q8_0.gguf, b.gguf",
        ),
        (["a-q8_0.gguf", "b-q8_0.gguf"], "owner/name", f"a single GGUF file that is {WANTED}, and it has TWO"),
        (
            ["m-q8_0-00001-of-00002.gguf"],
            "owner/name:Q8_0",
            "a single GGUF file that is Q8_0, and it has no GGUF file in one piece",
        ),
    ],
)
def test_a_repository_without_the_file_says_what_it_has(
    hub: type[Hub], files: list[str], name: str, line: str
) -> None:
    hub.files = dict.fromkeys(files, b"x")
    with refused(ModelNotFound, f"owner/name must have {line.replace('TWO', ', '.join(files))}"):
        models.pull(name)


def test_a_repository_without_a_model_is_refused(hub: type[Hub]) -> None:
    for files in (["README.md"], ["config.json"], ["model.safetensors"], ["x/model.safetensors", "config.json"]):
        hub.files = dict.fromkeys(files, b"x")
        line = "owner/name has neither a GGUF file nor config.json with *.safetensors"
        with refused(ModelNotFound, line):
            models.pull("owner/name")


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


def failed(why: str) -> str:
    return f"tiny is not on this machine and could not be fetched (hub owner/name: {why})"


def test_changed_bytes_from_the_hub_are_not_kept(offer: Offer, hub: type[Hub]) -> None:
    offer('{kind = "hub", repository = "owner/name"}')
    hub.files["tiny.gguf"] = BODY[:-1] + b"x"
    found, wanted = (hashlib.sha256(body).hexdigest() for body in (hub.files["tiny.gguf"], BODY))
    with refused(ModelNotFound, failed(f"its SHA-256 is {found}, expected {wanted}")):
        models.pull("tiny")
    hub.files["tiny.gguf"] = BODY + b"x"
    with refused(ModelNotFound, failed("tiny.gguf is longer than the 102400 bytes that it should have")):
        models.pull("tiny")
    hub.files["tiny.gguf"] = BODY[:-1]
    with refused(ModelNotFound, failed("tiny.gguf: the connection broke after 102399 of 102400 bytes")):
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
    line = (
        "owner/other is not on this machine and could not be fetched: there is no such repository or file (HTTP 404)"
    )
    with refused(ModelNotFound, line):
        models.pull("owner/other")


ABSENT = "owner/name is not on this machine and could not be fetched:"
NO_URL = "HF_ENDPOINT must be a URL that begins with https://, got"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("HF_HUB_OFFLINE", "1", "HF_HUB_OFFLINE forbids the hub"),
        ("HF_ENDPOINT", "ftp://x", f"{NO_URL} 'ftp://x'"),
        ("HF_ENDPOINT", "http://", f"{NO_URL} 'http://'"),
        ("HF_ENDPOINT", "http://[", f"{NO_URL} 'http://['"),
        ("HF_ENDPOINT", "http://a b", f"{NO_URL} 'http://a b'"),
        ("HF_ENDPOINT", "http://a\n", f"{NO_URL} 'http://a\\n'"),
        ("HF_ENDPOINT", "http://127.0.0.1:9", f"127.0.0.1 cannot be reached: {os.strerror(errno.ECONNREFUSED)}"),
        ("HF_TOKEN", "a\nb", "HF_TOKEN must be printable ASCII without spaces, got other characters in it"),
        ("HF_TOKEN", "\u20ac", "HF_TOKEN must be printable ASCII without spaces, got other characters in it"),
    ],
)
def test_settings_that_forbid_or_mean_no_hub(
    hub: type[Hub], monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(name, value)
    with refused(ModelNotFound, f"{ABSENT} {why}"):
        models.pull("owner/name")
    assert hub.asked == []


@pytest.mark.parametrize(
    ("status", "token", "why"),
    [
        (401, "", "it is private, gated or absent (HTTP 401); HF_TOKEN is not set"),
        (403, "secret", "it is private, gated or absent (HTTP 403)"),
        (404, "", "there is no such repository or file (HTTP 404)"),
        (429, "", "the hub refuses (HTTP 429)"),
        (503, "secret", "the hub refuses (HTTP 503)"),
    ],
)
def test_answers_of_the_hub_that_are_errors(
    hub: type[Hub], monkeypatch: pytest.MonkeyPatch, status: int, token: str, why: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    hub.answer = status, b"{}"
    with refused(ModelNotFound, f"{ABSENT} {why}"):
        models.pull("owner/name")


FILE = {"rfilename": "a-q4_k_m.gguf", "size": 5}
LISTINGS: list[object] = [
    None,
    [],
    {"siblings": None},
    {"siblings": [None]},
    {"siblings": [{}]},
    *({"siblings": [FILE | {"size": size}]} for size in (-1, 1.5, float("inf"), "5", 10**30)),
    *({"siblings": [FILE | {"lfs": lfs}]} for lfs in (7, {"sha256": 7}, {"sha256": "a\nb"}, {"sha256": "A" * 64})),
]


@pytest.mark.parametrize(
    "listing", [*map(json.dumps, LISTINGS), "", "{", "[" * 100_000], ids=lambda value: value[:50]
)
def test_answers_of_the_hub_that_list_no_files(hub: type[Hub], listing: str) -> None:
    hub.answer = 200, listing.encode()
    host = urllib.parse.urlsplit(os.environ["HF_ENDPOINT"]).netloc
    line = f"{ABSENT} the answer of {host} is not a list of files; HF_ENDPOINT names another hub"
    with refused(ModelNotFound, line):
        models.pull("owner/name")


def test_a_redirect_away_from_https(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(request: urllib.request.Request, timeout: float) -> None:
        request.full_url = "https" + request.full_url.removeprefix("http")
        pulling.hub._Redirects().redirect_request(request, None, 302, "Found", {}, "http://elsewhere/")

    monkeypatch.setattr(pulling.hub, "_opener", lambda: SimpleNamespace(open=follow))
    line = "127.0.0.1 cannot be reached: a redirect away from HTTPS, to 'http://elsewhere/'"
    with refused(ModelNotFound, f"{ABSENT} {line}"):
        models.pull("owner/name")


def test_a_server_that_cannot_resume(hub: type[Hub]) -> None:
    hub.cuts, hub.resumes = 1, False
    line = "name-q4_k_m.gguf: the connection broke after 51200 bytes, and the server cannot resume"
    with refused(ModelNotFound, f"{ABSENT} {line}"):
        models.pull("owner/name")
