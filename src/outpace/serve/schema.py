"""What a request may say. Fields that the server does not honour are refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, model_validator

from outpace.grammar import Grammar, JsonSchema, Regex
from outpace.serve.errors import ApiError


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 9.0 is a whole one, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole: TypeAlias = Annotated[StrictInt, BeforeValidator(_whole)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False, strict=True)]
MOST_DIGITS = 18
"""Digits of a token id as text: what a machine's integers hold; Python takes long over thousands, or refuses them."""

Stops: TypeAlias = str | Annotated[list[str], Field(max_length=16)] | None


class Strict(BaseModel):
    """Unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class TextPart(Strict):
    type: Literal["text"]
    text: str


Content: TypeAlias = str | list[TextPart]


def joined(content: Content) -> str:
    """Returns the text of a content, whole or in parts."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _answered(cls, given: Any) -> Any:
        """An answer may come back as the server, or the client, wrote it: with members that say nothing."""
        return without_refused(given, REFUSED_IN_MESSAGES, "messages") if isinstance(given, dict) else given

    def plain(self) -> dict[str, str]:
        """Returns what a chat template reads; whether a name shows is up to the template."""
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": joined(self.content), **named}


class StreamOptions(Strict):
    include_usage: StrictBool | None = None
    include_obfuscation: Annotated[
        Literal[False] | None, Field(description="Chunks are as long as what they say.")
    ] = None


class Speculation(Strict):
    """How this request speculates; what is left out is automatic. off: decode plainly."""

    drafter: str | None = None
    draft_length: Whole | None = None
    rule: str | None = None
    off: StrictBool = False
    trace: Annotated[StrictBool, Field(description="Say in each chunk how its tokens came.")] = False


class NamedSchema(Strict):
    """A JSON schema as OpenAI's API wraps it."""

    name: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: StrictBool | None = None


class ResponseFormat(Strict):
    """What the text must be: anything, a JSON object, what a JSON schema admits, or what a regex matches (ours)."""

    type: Literal["text", "json_object", "json_schema", "regex"]
    json_schema: NamedSchema | None = None
    pattern: str | None = None

    def grammar(self) -> Grammar | None:
        """Returns what constrains the sampling. Raises ApiError, or UsageError for a schema that cannot be kept."""
        needs = {"json_schema": "json_schema", "regex": "pattern"}.get(self.type)
        for name in ("json_schema", "pattern"):
            given = getattr(self, name) is not None
            if given != (name == needs):
                message = f"response_format of type {self.type!r} {'has no' if given else 'needs'} {name!r}"
                raise ApiError(400, message, param="response_format")
        if self.json_schema is not None:
            return JsonSchema(self.json_schema.schema_)
        if self.pattern is not None:
            return Regex(self.pattern)
        return JsonSchema({"type": "object"}) if self.type == "json_object" else None


class Prediction(Strict):
    """The answer as the caller expects it, copied from while it holds (OpenAI's predicted outputs)."""

    type: Literal["content"]
    content: Content


class Sampling(Strict):
    """What chat and text completions share."""

    model: str
    max_tokens: Whole | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    n: Whole | None = None
    stop: Stops = None
    seed: Whole | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None
    user: Annotated[str | None, Field(description="Who asks: no answer depends on it.")] = None
    safety_identifier: Annotated[str | None, Field(description="Who asks: no answer depends on it.")] = None
    prompt_cache_key: Annotated[str | None, Field(description="Prefixes are found whoever left them.")] = None
    top_k: Whole | None = None
    min_p: Number | None = None
    repetition_penalty: Number | None = None
    min_tokens: Whole | None = None
    ignore_eos: StrictBool | None = None
    stop_token_ids: list[Whole] | None = None
    banned_token_ids: list[Whole] | None = None
    allowed_token_ids: list[Whole] | None = None
    speculation: Speculation | None = None

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `Model.opening`; what was left out has the API's defaults."""
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream: true", param="stream_options")
        wanted = {
            "max_tokens": self.max_tokens,
            "n": self.n,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": _biases(self.logit_bias),
            "banned": _tuple(self.banned_token_ids),
            "allowed": _tuple(self.allowed_token_ids),
            "seed": self.seed,
            "stop": (self.stop,) if isinstance(self.stop, str) else _tuple(self.stop),
            "stop_ids": _tuple(self.stop_token_ids),
            "min_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
            **self._speculation(),
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def _speculation(self) -> dict[str, Any]:
        wanted = self.speculation or Speculation()
        if wanted.off:
            if wanted.drafter or wanted.draft_length:
                raise ApiError(400, "speculation is off and names a drafter or a length", param="speculation")
            return {"drafter": "none", "rule": wanted.rule}
        if wanted.drafter == "quantized":
            reason = "drafter 'quantized' is a second copy of the model, which no request can make a server load"
            raise ApiError(400, reason, param="speculation")
        return {"drafter": wanted.drafter, "draft_length": wanted.draft_length, "rule": wanted.rule}

    @property
    def traced(self) -> bool:
        return self.speculation is not None and self.speculation.trace


class ChatRequest(Sampling):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Whole | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None

    def options(self) -> dict[str, Any]:
        options = super().options()
        if self.response_format is not None:
            options["grammar"] = self.response_format.grammar()
        if self.prediction is not None:
            options["prediction"] = joined(self.prediction.content)
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise ApiError(400, "max_tokens and max_completion_tokens differ", param="max_tokens")
            options["max_tokens"] = self.max_completion_tokens
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        elif self.top_logprobs is not None:
            raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
        return options


class CompletionRequest(Sampling):
    """POST /v1/completions."""

    prompt: str | list[str] | list[Whole] | list[list[Whole]]
    logprobs: Annotated[Whole, Field(ge=0, le=20)] | None = None

    def options(self) -> dict[str, Any]:
        options = super().options()
        options.setdefault("max_tokens", 16)
        if self.logprobs is not None:
            options["logprobs"] = self.logprobs
        return options

    def prompts(self) -> list[str | list[int]]:
        """Returns the prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise ApiError(400, "prompt must hold at least one prompt, got an empty list", param="prompt")
        tokens = [one for one in self.prompt if isinstance(one, int)]
        return [tokens] if tokens else [one for one in self.prompt if not isinstance(one, int)]


REFUSED = {
    "tools": "this server calls no tools",
    "tool_choice": "this server calls no tools",
    "functions": "this server calls no functions",
    "function_call": "this server calls no functions",
    "parallel_tool_calls": "this server calls no tools",
    "modalities": "this server answers in text only",
    "audio": "this server answers in text only",
    "web_search_options": "this server does not search the web",
    "reasoning_effort": "the model has no reasoning levels",
    "verbosity": "the model has no verbosity levels",
    "service_tier": "this server has one tier",
    "moderation": "this server moderates nothing",
    "prompt_cache_options": "prefixes are kept while there is room",
    "prompt_cache_retention": "prefixes are kept while there is room",
    "store": "this server stores nothing",
    "metadata": "this server stores nothing",
    "suffix": "this server does not fill in the middle",
    "echo": "this server does not repeat the prompt",
    "best_of": "this server returns every choice; use n",
}
"""Fields of OpenAI's API that are known and not honoured, with the reason."""

REFUSED_IN_MESSAGES = {
    "tool_calls": "this server calls no tools",
    "function_call": "this server calls no functions",
    "audio": "this server answers in text only",
    "annotations": "templates read texts only",
    "refusal": "what an assistant said is its content",
}
"""The same, of a message."""

HARMLESS = {"echo": False, "store": False, "service_tier": "auto", "best_of": 1, "tool_choice": "none"}
"""Values with which a field asks for what the server does anyway."""


def without_refused(
    body: Mapping[str, Any], refused: Mapping[str, str] = REFUSED, within: str | None = None
) -> dict[str, Any]:
    """Returns the body less the fields that ask for nothing. Raises ApiError for one that asks for more.

    within: the parameter that the body is part of, None for a whole request.
    """
    kept = dict(body)
    for name, reason in refused.items():
        if name not in kept:
            continue
        value = kept.pop(name)
        if value is None or value == [] or (name in HARMLESS and value == HARMLESS[name]):
            continue
        place = f"{within}: {name}" if within else name
        raise ApiError(400, f"{place} is not supported: {reason}", param=within or name, code="unsupported_parameter")
    return kept


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _biases(given: dict[str, float] | None) -> dict[int, float] | None:
    if given is None:
        return None
    found = {}
    for token, bias in given.items():
        if len(token) > MOST_DIGITS or not token.isdecimal() or token != str(int(token)):
            raise ApiError(400, f"logit_bias maps token ids to numbers, got {token!r:.40}", param="logit_bias")
        if not -100 <= bias <= 100:
            raise ApiError(400, f"logit_bias must be in [-100, 100], got {bias:g}", param="logit_bias")
        found[int(token)] = bias
    return found
