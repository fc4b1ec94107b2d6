"""One request from the command line, run and written: the text to stdout, its figures to stderr."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.cli import arguments, console
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.cli.stream import Writer
    from outpace.generation import Generation
    from outpace.result import Result


@dataclass(frozen=True, slots=True)
class Show:
    """What of a generation is shown, and how."""

    as_json: bool = False
    draft: bool = False
    compare: bool = False
    trace: str | None = None
    explain: bool = False

    def check(self, speculation: bool) -> None:
        """Raises UsageError, naming what cannot be had together."""
        if self.draft and self.as_json:
            raise UsageError("--show-draft colours the text and --json prints none: leave one of them out")
        if self.draft and self.trace:
            raise UsageError("--trace shows what --show-draft does and more: leave one of them out")
        if self.compare and self.trace:
            raise UsageError("--trace slows down what --compare measures: leave one of them out")
        if self.explain and (self.as_json or self.trace):
            other = "--json holds what --explain tells" if self.as_json else "--trace slows down what --explain tells"
            raise UsageError(f"{other}: leave one of them out")
        if self.compare and not speculation:
            raise UsageError(
                "--compare needs speculation: leave out --no-speculation, --drafter none or --draft-length 0"
            )

    def check_choices(self, n: int, logprobs: int | None) -> None:
        """Raises UsageError for several texts where one is shown, and for log-probabilities that are not."""
        if n != 1 and (self.compare or self.trace):
            raise UsageError(f"--{'compare' if self.compare else 'trace'} is for one text: leave out --n {n}")
        if logprobs is not None and not self.as_json:
            raise UsageError("--logprobs are part of the JSON record: add --json")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the model. settings: the keyword arguments of `Model.stream`."""

    prompt: str
    settings: dict[str, Any] = field(default_factory=dict)
    audio: Path | None = None

    def stream(self, model: Model, **more: Any) -> Generation:
        """Returns the generation of one text: an answer to the prompt, or what the audio says."""
        settings = self.settings | more
        if self.audio is None:
            return model.stream(self.prompt, **settings)
        own = {name: value for name, value in settings.items() if name not in ("system", "raw")}
        if not own["banned"]:
            del own["banned"]  # the model's makers have a list
        return model.transcription(self.audio, **own)

    def check(self, prompt: str | None) -> None:
        """Raises UsageError for what audio goes without."""
        if self.audio is None:
            return
        settings = self.settings
        others = {"a prompt": prompt, "--system": settings["system"], "--raw": settings["raw"]}
        given = [name for name, value in others.items() if value]
        if given or settings["n"] != 1:
            raise UsageError(f"--audio is transcribed as it is: leave out {given[0] if given else '--n'}")

    @property
    def sampled(self) -> bool:
        """Whether the text depends on a seed."""
        return bool(self.settings["temperature"] > 0)


def read_prompt(argument: str | None) -> str:
    """Returns the prompt: the argument, or all of stdin. Raises UsageError when there is none."""
    if argument not in (None, "-"):
        prompt = arguments.unicode_text("the prompt", str(argument))
    elif argument is None and sys.stdin.isatty():
        raise UsageError("no prompt: give one as an argument or through a pipe (outpace generate --help)")
    else:
        data = getattr(sys.stdin, "buffer", sys.stdin).read()
        try:
            prompt = data if isinstance(data, str) else data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the prompt on stdin is not UTF-8: byte {error.start}") from None
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    return prompt


def run(model: Model, request: Request, writer: Writer, **more: Any) -> Result:
    """Returns the finished generation, after its text was written piece by piece."""
    return follow(request.stream(model, **more), writer)


def run_choices(model: Model, request: Request, show: Show) -> Result:
    """Returns the result of every choice, after their texts were written one after the other."""
    results: list[Result] = []
    if request.audio is not None:
        return run(model, request, writer_for(show))
    for generation in model.streams(request.prompt, **request.settings):
        if request.settings["n"] > 1 and not show.as_json:
            console.note(f"choice {len(results)}:")
        results.append(follow(generation, writer_for(show)))
    return replace(results[0], others=tuple(results[1:]))


def follow(generation: Generation, writer: Writer) -> Result:
    """Returns the result of a generation, after its text was written piece by piece.

    An interruption gives the caches back and ends the line, and goes on its way.
    """
    try:
        for chunk in generation:
            writer.chunk(chunk)
    except KeyboardInterrupt:
        generation.close()
        writer.end()
        raise
    writer.end()
    return generation.result()


def text_writer(show_draft: bool) -> Writer:
    """Returns what writes the text to stdout, with or without each token's origin."""
    from outpace.cli.stream import DraftWriter, TextWriter

    if not show_draft:
        return TextWriter()
    writer = DraftWriter()
    console.note(writer.legend())
    return writer


def writer_for(show: Show) -> Writer:
    from outpace.cli.stream import Silent

    return Silent() if show.as_json else text_writer(show.draft)


def report(result: Result, show: Show, sampled: bool) -> None:
    if show.as_json:
        console.print_json(result.record())
    else:
        for choice in result.choices:
            console.note(summary(choice, sampled))
            explain(choice, show)


def explain(result: Result, show: Show) -> None:
    """Writes what control decided and what came of it, where that is asked for."""
    from outpace.result import explanation

    for line in explanation(result) if show.explain else ():
        console.note(line)


def summary(result: Result, sampled: bool) -> str:
    """Returns the closing line: the figures, and for a sampled text what is needed to have it again."""
    line = result.summary()
    if not sampled:
        return line
    if not result.reproducible:
        return f"{line} | rule {result.rule}, not reproducible: set --draft-length, or --rule coupled"
    return f"{line} | seed {result.seed}" + (f", choice {result.choice}" if result.choice else "")
