"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from outpace.errors import UsageError
from outpace.serve.scheduler import Limits


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
        least = [("slots", limits.slots, 1), ("queue", limits.queue, 0), ("body bytes", self.body_bytes, 1024)]
        for name, value, low in least:
            if value < low:
                raise UsageError(f"{name} must be at least {low}, got {value}")
        if not 0 <= self.port < 65536:
            raise UsageError(f"port must be in [0, 65536), got {self.port}")
        if limits.seconds <= 0 or self.grace_seconds < 0:
            raise UsageError(f"timeouts must be positive, got {limits.seconds:g} and {self.grace_seconds:g}")
        if self.api_key is not None and not self.api_key.isascii():
            raise UsageError("an API key travels in an HTTP header and must be ASCII")
