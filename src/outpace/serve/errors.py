"""Errors in the shape of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from outpace.errors import ContextOverflow, OutpaceError, UsageError
from outpace.serve.scheduler import Busy, ShuttingDown, TimedOut


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every refusal."""

    error: ErrorDetail


class ApiError(Exception):
    """A refusal with its HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def as_api_error(error: BaseException) -> ApiError:
    """Returns how the API says what went wrong; what is not ours says nothing of our insides."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Busy):
        retry = {"Retry-After": str(error.retry_seconds)}
        return ApiError(429, str(error), kind="rate_limit_error", code="queue_full", headers=retry)
    if isinstance(error, ShuttingDown):
        return ApiError(503, str(error), kind="server_error", code="shutting_down", headers={"Retry-After": "5"})
    if isinstance(error, TimedOut):
        return ApiError(504, str(error), kind="server_error", code="timeout")
    if isinstance(error, ContextOverflow):
        return ApiError(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, UsageError):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, OutpaceError):
        return ApiError(500, str(error), kind="server_error")
    return ApiError(500, f"the server failed ({type(error).__name__})", kind="server_error")
