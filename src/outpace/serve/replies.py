"""Results as OpenAI's objects: completions, chunks, usage, log-probabilities."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from outpace.result import Chunk, Result, TokenLogprob, verified_depth
from outpace.serve.job import Figures
from outpace.text import Text

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


@dataclass(slots=True)
class Reply:
    """One response as it is put together. chat: chat completions, else text completions. n: choices of a prompt."""

    model: str
    text: Text
    chat: bool
    traced: bool = False
    n: int = 1
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time()))
    _places: dict[int, Places] = field(default_factory=dict)

    def head(self, streamed: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        prefix = "chatcmpl" if self.chat else "cmpl"
        return {
            "id": f"{prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def whole(self, results: Sequence[Result], figures: Sequence[Figures]) -> dict[str, Any]:
        """Returns the response that is sent in one piece."""
        choices = []
        for index, result in enumerate(results):
            logprobs = None if result.logprobs is None else self._logprobs(result.logprobs, index)
            choice: dict[str, Any] = {"index": index, "finish_reason": result.finish, "logprobs": logprobs}
            if self.chat:
                choice["message"] = {"role": "assistant", "content": result.text, "refusal": None}
            else:
                choice["text"] = result.text
            choices.append(choice)
        return {
            **self.head(False),
            "choices": choices,
            "usage": usage(results, figures, self.n),
            "speculation": speculation(results, figures),
        }

    def opening(self, index: int) -> dict[str, Any] | None:
        """Returns the first chunk of a choice, which says whose turn it is."""
        if not self.chat:
            return None
        return self._chunk(index, {"role": "assistant", "content": ""}, None, None)

    def piece(self, index: int, chunk: Chunk, plain_seconds: float) -> dict[str, Any] | None:
        """Returns one round's chunk, or None where it has nothing to say; those of a choice are asked for in order.

        plain_seconds: what plain decoding takes for a token under this load.
        """
        if not chunk.text and chunk.logprobs is None and not self.traced:
            return None
        logprobs = None if chunk.logprobs is None else self._logprobs(chunk.logprobs, index)
        made = self._chunk(index, {"content": chunk.text}, logprobs, None)
        if self.traced:
            made["speculation"] = {**self._trace(chunk), "plain_seconds": plain_seconds}
        return made

    def closing(self, index: int, finish: str) -> dict[str, Any]:
        """Returns the last chunk of a choice."""
        return self._chunk(index, {}, None, finish)

    def figures(self, results: Sequence[Result], figures: Sequence[Figures]) -> dict[str, Any]:
        """Returns the chunk without choices that a stream ends with where usage was asked for."""
        return {
            **self.head(True),
            "choices": [],
            "usage": usage(results, figures, self.n),
            "speculation": speculation(results, figures),
        }

    def _chunk(self, index: int, delta: dict[str, Any], logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": logprobs}
        if self.chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return {**self.head(True), "choices": [choice]}

    def _trace(self, chunk: Chunk) -> dict[str, Any]:
        step = chunk.step
        return {
            "tokens": [
                {"text": piece, "origin": origin} for piece, origin in zip(chunk.pieces, chunk.origins, strict=True)
            ],
            "draft": [self.text.describe(token) for token in step.draft.tokens[: step.drafted]],
            "depth": verified_depth(step.draft),
            "accepted": step.accepted,
            "seconds": {"draft": step.seconds.draft, "score": step.seconds.score, "verify": step.seconds.verify},
        }

    def _logprobs(self, found: Sequence[TokenLogprob], index: int) -> dict[str, Any]:
        return self._chat_logprobs(found) if self.chat else self._text_logprobs(found, index)

    def _chat_logprobs(self, found: Sequence[TokenLogprob]) -> dict[str, Any]:
        def entry(token: int, logprob: float) -> dict[str, Any]:
            piece = self.text.piece(token)
            name = piece.decode(errors="replace") if piece else self.text.describe(token)
            return {"token": name, "logprob": finite(logprob), "bytes": list(piece or name.encode())}

        return {
            "content": [
                {**entry(one.token, one.logprob), "top_logprobs": [entry(*other) for other in one.top]}
                for one in found
            ],
            "refusal": None,
        }

    def _text_logprobs(self, found: Sequence[TokenLogprob], index: int) -> dict[str, Any]:
        places = self._places.setdefault(index, Places(self.text))
        return {
            "tokens": [self._name(one.token) for one in found],
            "token_logprobs": [finite(one.logprob) for one in found],
            "top_logprobs": [self._named(one.top) for one in found],
            "text_offset": [places.next(one.token) for one in found],
        }

    def _named(self, top: Sequence[tuple[int, float]]) -> dict[str, float]:
        """Returns the alternatives by name; of two tokens of one name the likelier, which comes first."""
        names: dict[str, float] = {}
        for token, logprob in top:
            names.setdefault(self._name(token), finite(logprob))
        return names

    def _name(self, token: int) -> str:
        """Returns a token as text; part of a character as OpenAI writes it, so that no two of them look the same."""
        piece = self.text.piece(token)
        try:
            return piece.decode() or self.text.describe(token)
        except UnicodeDecodeError:
            return "bytes:" + piece.decode(errors="backslashreplace")


class Places:
    """Where the tokens of one text begin: at the characters that are complete before each."""

    def __init__(self, text: Text) -> None:
        self._detokeniser = text.detokeniser()
        self._characters = 0

    def next(self, token: int) -> int:
        """Returns where the next token begins."""
        place = self._characters
        self._characters += len(self._detokeniser.feed_one(token))
        return place


def finite(logprob: float) -> float:
    """Returns the log-probability as JSON can say it."""
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB


def usage(results: Sequence[Result], figures: Sequence[Figures], n: int) -> dict[str, Any]:
    """Returns emitted tokens, never drafted ones; each prompt counts once, however many choices (`n`) it has.

    Of a prediction, its tokens that appear in the text and those that do not, for each choice, as OpenAI defines
    them: whichever drafter there was. What was drafted is told by `speculation`.
    """
    prompt = sum(result.prompt_tokens for result in results[::n])
    emitted = sum(len(result.tokens) for result in results)
    appeared = sum(result.appeared for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": emitted,
        "total_tokens": prompt + emitted,
        "prompt_tokens_details": {"cached_tokens": sum(one.reused for one in figures[::n])},
        "completion_tokens_details": {
            "accepted_prediction_tokens": appeared,
            "rejected_prediction_tokens": sum(len(result.predicted) for result in results) - appeared,
        },
    }


def speculation(results: Sequence[Result], figures: Sequence[Figures]) -> dict[str, Any]:
    """Returns what drafting did for this response."""
    first = results[0]
    steps = sum(len(result.steps) for result in results)
    drafted = sum(result.drafted for result in results)
    ups = [one.speed_up for one in figures if one.speed_up is not None]
    return {
        "rule": first.rule,
        "lossless": first.lossless,
        "reproducible": first.reproducible,
        "drafter": first.drafter,
        "reason": first.reason,
        "fault": next((result.fault for result in results if result.fault), None),
        "seed": first.seed,
        "steps": steps,
        "tokens_per_step": sum(len(result.tokens) for result in results) / steps if steps else 0.0,
        "drafted": drafted,
        "acceptance_rate": sum(result.accepted for result in results) / drafted if drafted else None,
        "accepted_by_position": list(first.accepted_by_position),
        "draft_seconds": sum(result.seconds.draft for result in results),
        "score_seconds": sum(result.seconds.score for result in results),
        "speed_up": sum(ups) / len(ups) if ups else None,
        "tokens_per_second": [
            len(result.tokens) / one.decoded if one.decoded else None
            for result, one in zip(results, figures, strict=True)
        ],
        "first_token_seconds": figures[0].first,
    }
