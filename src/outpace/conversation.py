"""Several turns with one model, each seeing those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outpace.generation import Generation
from outpace.result import Result

if TYPE_CHECKING:
    from outpace.model import Model


class Chat:
    """A conversation. A turn that fails or is interrupted leaves no trace in it."""

    def __init__(self, model: Model, system: str | None = None) -> None:
        self.model = model
        self.messages: list[dict[str, str]] = [] if system is None else [{"role": "system", "content": system}]

    def send(self, text: str, **options: Any) -> Result:
        """Returns the answer to `text`, after adding both to the conversation; options as for `Model.generate`."""
        return self.stream(text, **options).run()

    def stream(self, text: str, **options: Any) -> Generation:
        """Returns the answer as it comes; the turn joins the conversation when the iterator is exhausted."""
        question = {"role": "user", "content": text}

        def remember(answer: str) -> None:
            self.messages += [question, {"role": "assistant", "content": answer}]

        generation = self.model.stream([*self.messages, question], **options)
        generation.on_end = remember
        return generation
