"""One line of JSON for each request that ends and for what goes wrong, without a word of anybody's text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, TextIO

from outpace.result import Result
from outpace.serve.job import Job

LOGGER = logging.getLogger("outpace.serve")


class Lines(logging.Formatter):
    """A record as JSON: a message that is a mapping gives its members."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.msg if isinstance(record.msg, dict) else {"message": record.getMessage()}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": at, "level": record.levelname.lower(), **said}, ensure_ascii=False)


class Unformatted(QueueHandler):
    """Hands records over as they are; the other side formats them."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


def start(stream: TextIO | None = None) -> QueueListener:
    """Returns the running listener, by default to stderr; who logs never waits for whoever reads it."""
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    out = logging.StreamHandler(stream or sys.stderr)
    out.setFormatter(Lines())
    LOGGER.handlers[:] = [Unformatted(queue)]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    listener = QueueListener(queue, out)
    listener.start()
    return listener


def ended(job: Job, seconds: float, result: Result | None, error: BaseException | None) -> dict[str, Any]:
    """Returns what is logged of a choice that ended after so many seconds, well or not."""
    said: dict[str, Any] = {
        "event": "request",
        "choice": job.index,
        "prompt_tokens": len(job.opening.ids),
        "cached_tokens": job.opening.reused,
        "seconds": round(seconds, 4),
    }
    if error is not None:
        return said | {"error": type(error).__name__}
    if result is not None:
        said |= {
            "waited_seconds": round(job.figures.waited, 4),
            "first_token_seconds": round(job.figures.first, 4),
            "finish": result.finish,
            "tokens": len(result.tokens),
            "tokens_per_step": round(result.tokens_per_step, 3),
            "drafted": result.drafted,
            "accepted": result.accepted,
            "drafter": result.drafter,
            "rule": result.rule,
            "fault": result.fault,
        }
    return said
