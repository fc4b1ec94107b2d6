"""A hub of model files on this machine, and what tests of pulling look at."""

from __future__ import annotations

import hashlib
import http.server
import json
from collections.abc import Callable
from typing import Any

from outpace.models.store import cache_folder

BODY = bytes(range(256)) * 400
Offer = Callable[..., None]


def left_in_cache() -> list[str]:
    """Returns the files in the cache, locks aside."""
    return sorted(str(f.relative_to(cache_folder())) for f in cache_folder().rglob("*") if f.suffix != ".lock")


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub in miniature. files: path -> bytes; `cuts`: how many downloads break off in the middle; answer:
    status and body of the list of files, in place of the true ones; resumes: whether a download goes on where it
    broke off."""

    files: dict[str, bytes]
    cuts: int
    asked: list[tuple[str, str | None, str | None]]
    answer: tuple[int, bytes] | None = None
    resumes = True

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        if self.path.startswith("/api/models/owner/name/") and self.answer is not None:
            self._send(self.answer[1], self.answer[0])
        elif self.path.startswith("/api/models/owner/name/"):
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
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if self.resumes else 0
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
