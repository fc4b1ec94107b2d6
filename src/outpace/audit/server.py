"""A client of any OpenAI-compatible server, over the standard library; what it answers is hostile until checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from outpace.audit.report import NotCovered
from outpace.errors import OutpaceError, UsageError

MOST_BYTES = 32 << 20
"""Of one answer."""

TOP = 5
"""Alternatives asked for at each token: what every server that reports any allows."""


class BadAnswer(Exception):
    """The server's answer is not what the protocol says."""


class Refused(NotCovered):
    """The server answered with a status of 4xx or 501: it does not do this."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the server refuses ({status}): {' '.join(message.split())[:200]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server reports them."""

    prompt: int
    completion: int
    total: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice. tokens, logprobs, top: one a token, None where the server reports none; top: token -> logprob."""

    text: str
    finish: str | None
    usage: Usage | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    top: tuple[Mapping[str, float], ...] | None = None


@dataclass(slots=True)
class Server:
    """A server at a base URL. model: what is asked for; timeout: seconds for one whole answer.

    chat: whether it is asked by chat completions, for want of the others. fields: what every request carries besides.
    """

    url: str
    model: str
    timeout: float
    key: str | None = None
    chat: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    _place: Any = field(init=False)

    def __post_init__(self) -> None:
        self._place = _place(self.url)

    def ask(self, prompt: str, **options: Any) -> Answer:
        """Returns the answer to a prompt. options: max_tokens, temperature, seed, stop, logprobs (a count).

        Raises Refused, BadAnswer, or OutpaceError when there is no answer in time.
        """
        record = self._json(self._call("POST", self._path(), self._body(prompt, options)))
        return _chat_answer(record) if self.chat else _text_answer(record)

    def stream(self, prompt: str, **options: Any) -> tuple[str, list[str]]:
        """Returns the joined text of a streamed answer, and the finish reasons that came with it."""
        pieces: list[str] = []
        reasons: list[str] = []
        for record in self._events(self._body(prompt, options | {"stream": True})):
            for choice in _list(record, "choices"):
                piece = _dict(choice, "delta").get("content") if self.chat else choice.get("text")
                pieces.append(piece or "")
                if choice.get("finish_reason"):
                    reasons.append(str(choice["finish_reason"]))
        return "".join(pieces), reasons

    def models(self) -> list[str]:
        """Returns the names of the models that it serves."""
        record = self._json(self._call("GET", "/models"))
        return [str(one.get("id")) for one in _list(record, "data")]

    def metrics(self) -> str | None:
        """Returns what stands at /metrics, beside /v1 or under it; None where the server shows nothing there."""
        for base in dict.fromkeys((self._place[3].removesuffix("/v1"), self._place[3])):
            try:
                return self._call("GET", "/metrics", base=base).decode("utf-8", errors="replace")
            except (Refused, BadAnswer):
                continue
        return None

    def _path(self) -> str:
        return "/chat/completions" if self.chat else "/completions"

    def _body(self, prompt: str, options: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, **self.fields, **options}
        if not self.chat:
            return body | {"prompt": prompt}
        if "logprobs" in body:
            body |= {"logprobs": True, "top_logprobs": body["logprobs"]}
        return body | {"messages": [{"role": "user", "content": prompt}]}

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        text = self._call("POST", self._path(), body).decode("utf-8", errors="strict")
        ended = False
        for line in text.splitlines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                ended = True
            elif ended:
                raise BadAnswer("the stream goes on after [DONE]")
            else:
                yield self._json(data.encode())
        if not ended:
            raise BadAnswer("the stream ends without [DONE]")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, *, base: str | None = None) -> bytes:
        """Returns the body of a good answer, read to its end within the time. base: the server's own unless given."""
        scheme, host, port, own = self._place
        base = own if base is None else base
        make = HTTPSConnection if scheme == "https" else HTTPConnection
        connection = make(host, port, timeout=self.timeout)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, base + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = self._read(response)
        except (OSError, HTTPException) as error:
            raise OutpaceError(f"{self.url} does not answer: {type(error).__name__} {error}") from None
        finally:
            connection.close()
        if 400 <= response.status < 500 or response.status == 501:
            raise Refused(response.status, content.decode("utf-8", errors="replace"))
        if response.status != 200:
            raise BadAnswer(f"status {response.status}: {content[:200].decode('utf-8', errors='replace')}")
        return content

    def _read(self, response: HTTPResponse) -> bytes:
        end, parts, size = monotonic() + self.timeout, [], 0
        while part := response.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise BadAnswer(f"an answer has more than {MOST_BYTES} bytes")
            if monotonic() > end:
                raise TimeoutError(f"an answer took more than {self.timeout:g} s")
        return b"".join(parts)

    @staticmethod
    def _json(content: bytes) -> dict[str, Any]:
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            raise BadAnswer(f"not JSON: {content[:80]!r}") from None
        if not isinstance(record, dict):
            raise BadAnswer(f"an answer must be an object, got {content[:80]!r}")
        return record


def connect(
    url: str,
    model: str | None = None,
    *,
    timeout: float = 60.0,
    key: str | None = None,
    fields: Mapping[str, Any] | None = None,
    chat_first: bool = False,
) -> Server:
    """Returns a server that answers, with its model and its way of completing found out.

    url: with or without /v1. model: None asks for the first that it serves. fields: what every request carries.
    chat_first: asks by chat completions where the server has them.
    Raises UsageError for what is not a URL, OutpaceError where nothing that speaks the protocol answers.
    """
    if not timeout > 0:
        raise UsageError(f"timeout must be above 0 seconds, got {timeout}")
    base = url.rstrip("/")
    problem = ""
    for root in (base, base + "/v1") if not base.endswith("/v1") else (base,):
        server = Server(root, model or "", timeout, key, fields=fields or {})
        try:
            names = server.models()
        except (Refused, BadAnswer) as error:
            problem = str(error)
            if model is None:
                continue
            names = []
        server.model = model or (names[0] if names else "")
        for server.chat in (True, False) if chat_first else (False, True):
            try:
                server.ask("Hello", max_tokens=1, temperature=0)
                return server
            except (Refused, BadAnswer) as error:
                problem = str(error)
    raise OutpaceError(f"{url} is no OpenAI-compatible server that completes: {problem}")


def _place(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"a server's URL must be http://HOST[:PORT][/PATH], got {url!r}")
    return parts.scheme, parts.hostname, port, parts.path


def _text_answer(record: dict[str, Any]) -> Answer:
    choice = _first(record)
    tokens = logprobs = top = None
    if found := choice.get("logprobs"):
        tokens = tuple(str(token) for token in _list(found, "tokens"))
        logprobs = tuple(_number(one) for one in _list(found, "token_logprobs"))
        listed = found.get("top_logprobs")
        top = None if not listed else tuple(_law(one) for one in listed)
    return Answer(_text(choice.get("text")), choice.get("finish_reason"), _usage(record), tokens, logprobs, top)


def _chat_answer(record: dict[str, Any]) -> Answer:
    choice = _first(record)
    tokens = logprobs = top = None
    if found := choice.get("logprobs"):
        entries = _list(found, "content")
        tokens = tuple(str(one.get("token")) for one in entries)
        logprobs = tuple(_number(one.get("logprob")) for one in entries)
        top = tuple(
            {str(each.get("token")): _number(each.get("logprob")) for each in _list(one, "top_logprobs")}
            for one in entries
        )
    text = _text(_dict(choice, "message").get("content"))
    return Answer(text, choice.get("finish_reason"), _usage(record), tokens, logprobs, top)


def _first(record: dict[str, Any]) -> dict[str, Any]:
    choices = _list(record, "choices")
    if not choices:
        raise BadAnswer("an answer without choices")
    return choices[0]


def _usage(record: dict[str, Any]) -> Usage | None:
    found = record.get("usage")
    if not isinstance(found, dict):
        return None
    values = [found.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not all(isinstance(value, int) for value in values):
        raise BadAnswer(f"usage must hold three counts, got {found!r:.120}")
    return Usage(*values)  # type: ignore[arg-type]


def _law(record: object) -> dict[str, float]:
    if not isinstance(record, dict):
        raise BadAnswer(f"top_logprobs must hold objects, got {record!r:.60}")
    return {str(token): _number(value) for token, value in record.items()}


def _number(value: object) -> float:
    if not isinstance(value, int | float) or value != value:
        raise BadAnswer(f"a log-probability must be a number, got {value!r:.60}")
    return float(value)


def _text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise BadAnswer(f"a text must be a string, got {value!r:.60}")
    return value or ""


def _list(record: object, name: str) -> list[dict[str, Any]]:
    found = record.get(name) if isinstance(record, dict) else None
    if not isinstance(found, list):
        raise BadAnswer(f"{name!r} must be a list, got {found!r:.60}")
    return found


def _dict(record: object, name: str) -> dict[str, Any]:
    found = record.get(name) if isinstance(record, dict) else None
    if not isinstance(found, dict):
        raise BadAnswer(f"{name!r} must be an object, got {found!r:.60}")
    return found
