"""Files of the Hugging Face hub, over plain HTTPS.

HF_ENDPOINT names another hub, HF_TOKEN opens private repositories (it is sent to the endpoint alone, not to where
that redirects), HF_HUB_OFFLINE forbids the network, and the usual proxy variables hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from outpace.errors import OutpaceError
from outpace.native.metadata import quoted

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

_ENDPOINT = "https://huggingface.co"
_TIMEOUT = 20.0
_RETRIES = 4
_BLOCK = 1 << 20
_LISTING = 16 << 20
HUB_ID = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(?P<quant>[\w.-]{1,64}))?")
_URL = re.compile(r"https?://[A-Za-z0-9._~-]+(?::\d{1,5})?(?:/[!-~]*)?")
_SAFE_FILE = re.compile(r"(?:[A-Za-z0-9_][\w.+-]*/)*[A-Za-z0-9_][\w.+-]*")


class FetchFailed(OutpaceError):
    """A source did not give the file; the text says why."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository. sha256: empty where the hub does not state it (small files)."""

    name: str
    size: int
    sha256: str = ""


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def list_files(repository: str) -> list[HubFile]:
    """Returns the files of a repository's main branch. Raises FetchFailed."""
    url = f"{_endpoint()}/api/models/{repository}/revision/main?blobs=true"
    try:
        with _open(url) as response:
            text = response.read(_LISTING + 1)
        if len(text) > _LISTING:
            raise ValueError("too long")
        found = [_file(entry) for entry in json.loads(text)["siblings"]]
    except (HTTPException, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        host = urllib.parse.urlsplit(url).netloc
        raise FetchFailed(f"the answer of {host} is not a list of files; HF_ENDPOINT names another hub") from None
    return [file for file in found if file is not None]


def _file(entry: dict[str, Any]) -> HubFile | None:
    """Returns a file whose name is safe to use here, or None."""
    name, lfs = str(entry["rfilename"]), entry.get("lfs") or {}
    if not _SAFE_FILE.fullmatch(name):
        return None
    size, sha256 = lfs.get("size", entry.get("size") or 0), lfs.get("sha256", "")
    if type(size) is not int or not 0 <= size < 1 << 50 or not re.fullmatch("(?:[0-9a-f]{64})?", sha256):
        raise ValueError(f"a file of {size} bytes and hash {sha256}")
    return HubFile(name, size, sha256)


def download(repository: str, file: str, size: int, sink: _Sink, progress: Progress) -> None:
    """Writes a file of exactly `size` bytes (any size if 0) to `sink`; a broken connection is resumed.

    Raises FetchFailed.
    """
    url = f"{_endpoint()}/{repository}/resolve/main/{urllib.parse.quote(file)}"
    done, tries = 0, 0
    while True:
        before = done
        with _open(url, done) as response:
            if done and response.status != 206:
                raise FetchFailed(f"{file}: the connection broke after {done} bytes, and the server cannot resume")
            while block := _block(response):
                done += len(block)
                if size and done > size:
                    raise FetchFailed(f"{file} is longer than the {size} bytes that it should have")
                sink.write(block)
                progress(done, size or done)
        if block is not None and done >= size:
            return
        tries = 1 if done > before else tries + 1
        if tries >= _RETRIES:
            raise FetchFailed(f"{file}: the connection broke after {done} of {size} bytes")
        time.sleep(0.2 * 2**tries)


def _block(response: Any) -> bytes | None:
    """Returns the next bytes, none at the end; None when the connection broke."""
    try:
        block: bytes = response.read(_BLOCK)
        return block
    except (HTTPException, OSError):
        return None


def _endpoint() -> str:
    endpoint = os.environ.get("HF_ENDPOINT", "") or _ENDPOINT
    if not _URL.fullmatch(endpoint):
        raise FetchFailed(f"HF_ENDPOINT must be a URL that begins with https://, got {quoted(endpoint)}")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise FetchFailed("HF_HUB_OFFLINE forbids the hub")
    return endpoint.rstrip("/")


def _open(url: str, start: int = 0) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "outpace"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    token = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch("[!-~]*", token):
        raise FetchFailed("HF_TOKEN must be printable ASCII without spaces, got other characters in it")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        return _opener().open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        why = "there is no such repository or file" if error.code == 404 else "the hub refuses"
        if error.code in (401, 403):
            why = "it is private, gated or absent"
        hint = "; HF_TOKEN is not set" if error.code in (401, 403) and not token else ""
        raise FetchFailed(f"{why} (HTTP {error.code}){hint}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)  # of a URLError, another error or a text
        told = getattr(reason, "strerror", None) or reason
        raise FetchFailed(f"{urllib.parse.urlsplit(url).hostname} cannot be reached: {told}") from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect, but not from HTTPS to anything else."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https://") and not newurl.startswith("https://"):
            raise urllib.error.URLError(f"a redirect away from HTTPS, to {newurl!r:.80}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Returns an opener for HTTP and HTTPS alone, through the user's proxies."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        _Redirects(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def file_sha256(file: Path) -> str:
    """Returns a file's SHA-256 in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
