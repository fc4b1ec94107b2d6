"""A model's own chat template: a Jinja program that turns a conversation into the text the model was trained on."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from outpace.errors import BadModelFile, UsageError
from outpace.native.textfile import one_line
from outpace.sandbox import Budget, Sandbox, TemplateRefused

MAX_SOURCE = 64 << 10
"""Characters; the longest templates in use have about 20,000."""


class ChatTemplate:
    """A compiled template. names: bos_token, eos_token, ... as the template may use them."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        if len(source) > MAX_SOURCE:
            raise BadModelFile(f"the chat template has {len(source)} characters, at most {MAX_SOURCE} make sense")
        self._names = dict(names)
        self._lock = threading.Lock()
        self._environment = Sandbox()
        try:
            self._template = self._environment.from_string(source)
        except (TemplateError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise BadModelFile(f"the model's chat template does not compile: {one_line(error)}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str:
        """Returns the conversation as text.

        Raises UsageError when the template refuses the conversation, BadModelFile when it fails or never ends.
        """
        with self._lock:
            self._environment.budget = budget = Budget()
            out: list[str] = []
            try:
                for chunk in self._template.generate(
                    **self._names,
                    messages=[dict(message) for message in messages],
                    add_generation_prompt=add_generation_prompt,
                    tools=None,
                    documents=None,
                ):
                    budget.pay(len(chunk))
                    out.append(chunk)
            except TemplateRefused as refusal:
                raise UsageError(f"the model's chat template refuses the messages: {one_line(refusal)}") from None
            except Exception as error:  # a template can raise whatever Python can
                raise BadModelFile(f"the model's chat template failed: {one_line(error)}") from None
        return "".join(out)
