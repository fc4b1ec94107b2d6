"""`outpace generate`: one prompt, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outpace.cli import console, options
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.bench.speculation import Comparison
    from outpace.cli.stream import Writer
    from outpace.generation import Generation
    from outpace.result import Result
    from outpace.trace import Tracer

TERMINAL = "-"
"""The value of --trace without a file."""

GREEDY = "greedy: p is 1 on the token with the largest logit; --temperature 1 shows the model's own law"

Trace = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="[FILE.html]",
        rich_help_panel=options.OUTPUT,
        show_default="off",
        help="Show each round on stderr, or write them all as a page that stands alone; the text comes at the end.",
    ),
]


@dataclass(frozen=True, slots=True)
class Show:
    """What of a generation is shown, and how."""

    as_json: bool = False
    draft: bool = False
    compare: bool = False
    trace: str | None = None

    def check(self, speculation: bool) -> None:
        """Raises UsageError, naming what cannot be had together."""
        if self.draft and self.as_json:
            raise UsageError("--show-draft colours the text and --json prints none: leave one of them out")
        if self.draft and self.trace:
            raise UsageError("--trace shows what --show-draft does and more: leave one of them out")
        if self.compare and self.trace:
            raise UsageError("--trace slows down what --compare measures: leave one of them out")
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


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("generate", cls=options.OptionalTraceFile)(generate)


def generate(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", show_default="read from stdin", help="The question; - reads it from stdin."),
    ] = None,
    model: options.Model = options.EMBEDDED,
    context: options.ContextLength = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            "--audio",
            metavar="FILE.wav",
            rich_help_panel=options.MODEL,
            show_default="none",
            help="Transcribe this instead of answering a prompt: up to 30 seconds, by a folder of Whisper on "
            "--engine torch.",
        ),
    ] = None,
    system: options.System = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            rich_help_panel=options.MODEL,
            show_default="off",
            help="Go on with the prompt as it is, without the chat template.",
        ),
    ] = False,
    drafter: options.Drafter = "auto",
    draft: options.DraftModel = None,
    draft_length: options.DraftLength = None,
    store: options.Store = None,
    rule: options.Rule = "coupled",
    no_speculation: options.NoSpeculation = False,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    logit_bias: options.LogitBias = None,
    ban: options.Ban = None,
    allow: options.Allow = None,
    seed: options.Seed = None,
    n: options.Choices = 1,
    max_tokens: options.MaxTokens = 256,
    stop: options.Stop = None,
    stop_id: options.StopId = None,
    ignore_eos: options.IgnoreEos = False,
    min_tokens: options.MinTokens = 0,
    json_schema: options.SchemaFile = None,
    regex: options.RegexPattern = None,
    show_draft: options.ShowDraft = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            rich_help_panel=options.OUTPUT,
            show_default="off",
            help="Run again without speculation; print the speed-up, and whether the text is identical.",
        ),
    ] = False,
    trace: Trace = None,
    as_json: options.Json = False,
    logprobs: options.Logprobs = None,
    threads: options.Threads = None,
    engine: options.Engine = "auto",
    draft_engine: options.DraftEngine = "auto",
    translate: options.Translate = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    pack: options.Pack = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Answer a prompt.

    The text goes to stdout as it comes, everything about it to stderr. Speculation is on: a drafter proposes the next
    tokens, the model scores them in one pass, and the text is exactly what the model says without them.
    """
    settings = {
        "system": system,
        "raw": raw,
        "draft_length": draft_length,
        "rule": rule,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "logit_bias": options.token_biases(logit_bias),
        "banned": tuple(ban or ()),
        "allowed": tuple(allow) if allow else None,
        "seed": seed,
        "n": n,
        "logprobs": logprobs,
        "max_tokens": max_tokens,
        "stop": tuple(stop or ()),
        "stop_ids": tuple(stop_id or ()),
        "ignore_eos": ignore_eos,
        "min_tokens": min_tokens,
        "grammar": options.grammar(json_schema, regex),
    }
    settings["drafter"] = options.chosen_drafter(drafter, draft, draft_length, no_speculation)
    show = Show(as_json=as_json, draft=show_draft, compare=compare, trace=options.trace_file(trace))
    show.check(speculation=settings["drafter"] != "none" and draft_length != 0)
    show.check_choices(n, logprobs)
    request = Request(read_prompt(prompt) if audio is None else "", settings, audio)
    request.check(prompt)
    run_on = options.EngineChoice(engine, draft_engine, translate, device, dtype, trust_remote_code, pack)
    loaded = options.load_model(model, draft=draft, threads=threads, context=context, engine=run_on, store=store)
    with loaded:
        if compare:
            _compare(loaded, request, show)
        elif trace:
            _trace(loaded, request, show)
        else:
            _report(run_choices(loaded, request, show), show, request.sampled)


def read_prompt(argument: str | None) -> str:
    """Returns the prompt: the argument, or all of stdin. Raises UsageError when there is none."""
    if argument not in (None, "-"):
        prompt = str(argument)
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
        return run(model, request, _writer(show))
    for generation in model.streams(request.prompt, **request.settings):
        if request.settings["n"] > 1 and not show.as_json:
            console.note(f"choice {len(results)}:")
        results.append(follow(generation, _writer(show)))
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


def _writer(show: Show) -> Writer:
    from outpace.cli.stream import Silent

    return Silent() if show.as_json else text_writer(show.draft)


def _report(result: Result, show: Show, sampled: bool) -> None:
    if show.as_json:
        console.print_json(result.record())
    else:
        for choice in result.choices:
            console.note(summary(choice, sampled))


def summary(result: Result, sampled: bool) -> str:
    """Returns the closing line: the figures, and for a sampled text what is needed to have it again."""
    line = result.summary()
    if not sampled:
        return line
    if not result.reproducible:
        return f"{line} | rule {result.rule}, not reproducible: set --draft-length, or --rule coupled"
    return f"{line} | seed {result.seed}" + (f", choice {result.choice}" if result.choice else "")


def _compare(model: Model, request: Request, show: Show) -> None:
    from outpace.bench.speculation import Comparison
    from outpace.cli.stream import Silent

    seeded = Request(request.prompt, request.settings | {"seed": options.seed_or_new(request.settings["seed"])})
    # The first passes of a process fault its memory in; neither side should pay for that.
    run(model, seeded, Silent(), max_tokens=2, drafter="none", draft_length=None)
    speculative = run(model, seeded, _writer(show))
    # A lossy rule may differ from the plain sampler even where nothing is drafted.
    rule = request.settings["rule"] if speculative.lossless else "coupled"
    plain = run(model, seeded, Silent(), drafter="none", draft_length=None, rule=rule)
    found = Comparison(speculative, plain)
    if show.as_json:
        console.print_json(found.record())
        return
    console.note(f"speculative: {summary(speculative, request.sampled)}")
    console.note(f"plain:       {plain.summary()}")
    for line in verdict(found):
        console.note(line)


def verdict(found: Comparison) -> list[str]:
    """Returns the lines that close a comparison."""
    faster = f"{found.speedup:.2f} times as fast as plain decoding"
    difference = found.first_difference()
    if difference is None:
        return [f"{faster}, text identical"]
    from outpace.cli.trace import quoted

    lines = [f"{faster}, texts differ from token {difference.token} on, after {quoted(difference.before)}:"]
    lines += [f"  speculative {quoted(difference.speculative)}", f"  plain       {quoted(difference.plain)}"]
    if not found.speculative.lossless:
        lines.append(f"  (rule {found.speculative.rule} is lossy: it keeps neither the model's law nor the text)")
    elif found.speculative.rule != "coupled":
        lines.append(
            f"  (rule {found.speculative.rule} keeps the model's law, not the seed's text; coupled keeps both)"
        )
    return lines


def _trace(model: Model, request: Request, show: Show) -> None:
    from outpace.cli.stream import Silent
    from outpace.registry import RULES
    from outpace.trace import Tracer

    seed = options.seed_or_new(request.settings["seed"])
    out = console.stderr()

    def on_round(one: Any) -> None:
        from outpace.cli.trace import render

        for line in render(one, model.text.describe):
            out.print(line, soft_wrap=True)
        out.print()

    to_terminal = show.trace == TERMINAL and not show.as_json
    if to_terminal and not request.sampled:
        console.note(GREEDY)
    tracer = Tracer(RULES.get(request.settings["rule"])(), seed, on_round if to_terminal else lambda one: None)
    result = run(model, request, Silent(), seed=seed, observer=tracer)
    if show.trace not in (None, TERMINAL):
        _write_page(Path(str(show.trace)), model, request, result, tracer)
    if show.as_json:
        record = result.record()
        if show.trace == TERMINAL:
            record["rounds"] = [one.record() for one in tracer.rounds]
        console.print_json(record)
        return
    from outpace.cli.stream import TextWriter

    writer = TextWriter()
    writer.write(result.text)
    writer.end()
    console.note(summary(result, request.sampled))
    if show.trace != TERMINAL:
        console.note(f"trace of {len(tracer.rounds)} rounds written to {show.trace}")


def _write_page(file: Path, model: Model, request: Request, result: Result, tracer: Tracer) -> None:
    from outpace.cli.trace_html import Piece, page

    detokeniser = model.text.detokeniser()
    pieces = [
        Piece(detokeniser.feed((token,)), origin, one.number)
        for one in tracer.rounds
        for token, origin in zip(one.tokens, one.origins, strict=True)
    ]
    rate = result.acceptance_rate
    facts = {
        "prompt": request.prompt,
        "target": result.model,
        "engine": result.engine,
        "drafter": f"{result.drafter}: {result.reason}",
        "rule": result.rule,
        "sampling": ", ".join(_sampling(request.settings)),
        "seed": str(result.seed),
        "tokens": f"{len(result.tokens)} in {len(tracer.rounds)} rounds, {result.tokens_per_step:.2f} a round",
        "accepted": "nothing drafted" if rate is None else f"{result.accepted} of {result.drafted}, {rate:.3f}",
    }
    file.write_text(page("outpace trace", facts, pieces, tracer.rounds, model.text.describe), encoding="utf-8")


def _sampling(settings: dict[str, Any]) -> Iterator[str]:
    """Yields what the page says about the law: the filters, and of the rest what was asked for."""
    for name in ("temperature", "top_p", "top_k", "min_p"):
        yield f"{name} {settings[name]}"
    for name, off in (
        ("repetition_penalty", 1),
        ("presence_penalty", 0),
        ("frequency_penalty", 0),
        ("min_tokens", 0),
    ):
        if settings[name] != off:
            yield f"{name} {settings[name]}"
    for name in ("logit_bias", "banned", "allowed", "stop_ids", "grammar"):
        if settings[name]:
            yield f"{name} {settings[name]}"
