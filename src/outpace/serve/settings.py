"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from outpace.errors import UsageError
from outpace.serve.scheduler import Limits

LONGEST = 1e9
"""Seconds of a timeout, some thirty years; what waits for it takes no much larger ones, nor infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """host: loopback unless told otherwise. names: what `model` may be in a request, the first is reported.

    api_key: None lets anyone in. body_bytes: of one request at most. grace_seconds: for open requests at the end.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    api_key: str | None = None
    body_bytes: int = 8 << 20
    grace_seconds: float = 30.0
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Raises UsageError for what is out of range."""
        limits = self.limits
        least = [
            ("tokens", limits.tokens, 0),
            ("slots", limits.slots, 1),
            ("queue", limits.queue, 0),
            ("body bytes", self.body_bytes, 1024),
        ]
        for name, value, low in least:
            if value < low:
                raise UsageError(f"{name} must be at least {low}, got {value}")
        if not 0 <= self.port < 65536:
            raise UsageError(f"port must be in [0, 65536), got {self.port}")
        if not 0 < limits.seconds <= LONGEST:
            raise UsageError(f"request seconds must be in (0, {LONGEST:g}], got {limits.seconds:g}")
        if not 0 <= self.grace_seconds <= LONGEST:
            raise UsageError(f"grace seconds must be in [0, {LONGEST:g}], got {self.grace_seconds:g}")
        if self.api_key is not None and not (self.api_key and self.api_key.isascii()):
            raise UsageError("an API key travels in an HTTP header and must be ASCII, and not empty")
        if "" in self.names:
            raise UsageError("a name that requests call the model by must not be empty")
