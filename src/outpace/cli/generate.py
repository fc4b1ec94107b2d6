"""`outpace generate`: one prompt, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli import arguments, comparing, options, tracing
from outpace.cli.answer import Request, Show, read_prompt, report, run_choices
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import UsageError

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


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("generate", cls=arguments.OptionalTraceFile)(generate)


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
    predict: options.Predict = None,
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
    explain: options.Explain = False,
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
    exit_layer: options.ExitLayer = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Answer a prompt.

    The text goes to stdout as it comes, everything about it to stderr. Speculation is on: a drafter proposes the next
    tokens, the model scores them in one pass, and the text is exactly what the model says without them.
    """
    settings = {
        "system": None if system is None else arguments.unicode_text("--system", system),
        "raw": raw,
        "draft_length": draft_length,
        "rule": rule,
        "prediction": arguments.prediction(predict),
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "logit_bias": arguments.token_biases(logit_bias),
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
        "grammar": arguments.grammar(json_schema, regex),
    }
    settings["drafter"] = arguments.chosen_drafter(drafter, draft, draft_length, no_speculation)
    trace_file = arguments.trace_file(trace)
    show = Show(as_json=as_json, draft=show_draft, compare=compare, trace=trace_file, explain=explain)
    show.check(speculation=settings["drafter"] != "none" and draft_length != 0)
    show.check_choices(n, logprobs)
    request = Request(read_prompt(prompt) if audio is None else "", settings, audio)
    request.check(prompt)
    if exit_layer is not None and drafter != "early_exit":
        raise UsageError(f"--exit-layer is for the drafter 'early_exit', got --drafter {drafter}: leave it out")
    run_on = EngineChoice(engine, draft_engine, translate, device, dtype, trust_remote_code, pack, exit_layer)
    loaded = load_model(model, draft=draft, threads=threads, context=context, engine=run_on, store=store)
    with loaded:
        if compare:
            comparing.compare(loaded, request, show)
        elif trace:
            tracing.trace(loaded, request, show)
        else:
            report(run_choices(loaded, request, show), show, request.sampled)
