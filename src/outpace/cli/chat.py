"""`outpace chat`: a conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from outpace.cli import answer, arguments, console, options
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import OutpaceError, UsageError

if TYPE_CHECKING:
    from outpace.conversation import Chat

PROMPT = "> "
HELP = "/reset begins anew, /exit (or Ctrl-D) ends, Ctrl-C stops an answer and forgets its turn"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("chat")(chat)


def chat(
    model: options.Model = options.EMBEDDED,
    context: options.ContextLength = None,
    system: options.System = None,
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
    max_tokens: options.MaxTokens = 1024,
    stop: options.Stop = None,
    stop_id: options.StopId = None,
    ignore_eos: options.IgnoreEos = False,
    min_tokens: options.MinTokens = 0,
    show_draft: options.ShowDraft = False,
    threads: options.Threads = None,
    engine: options.Engine = "auto",
    draft_engine: options.DraftEngine = "auto",
    translate: options.Translate = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    pack: options.Pack = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Hold a conversation; each turn reuses the cache of those before it.

    Each line of stdin is a message. /reset begins anew, /exit or Ctrl-D ends; Ctrl-C stops an answer and forgets its
    turn. Answers go to stdout, everything about them to stderr.
    """
    settings = {
        "drafter": arguments.chosen_drafter(drafter, draft, draft_length, no_speculation),
        "draft_length": draft_length,
        "rule": rule,
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
        "max_tokens": max_tokens,
        "stop": tuple(stop or ()),
        "stop_ids": tuple(stop_id or ()),
        "ignore_eos": ignore_eos,
        "min_tokens": min_tokens,
    }
    if system is not None:
        arguments.unicode_text("--system", system)
    run_on = EngineChoice(engine, draft_engine, translate, device, dtype, trust_remote_code, pack)
    loaded = load_model(model, draft=draft, threads=threads, context=context, engine=run_on, store=store)
    with loaded:
        loaded.check(**settings)
        _converse(loaded.chat(system), settings, show_draft)


def _converse(conversation: Chat, settings: dict[str, Any], show_draft: bool) -> None:
    watched = sys.stdin.isatty()
    first = list(conversation.messages)
    if watched:
        console.note(HELP)
    while (line := _next(watched)) is not None:
        message = line.strip()
        if message == "/exit":
            return
        if message == "/reset":
            conversation.messages[:] = first
            console.note("a new conversation")
        elif message.startswith("/"):
            console.fail(f"unknown command {message.split()[0]}: {HELP}")
        elif message:
            _turn(conversation, line, settings, show_draft, watched)


def _turn(conversation: Chat, message: str, settings: dict[str, Any], show_draft: bool, watched: bool) -> None:
    try:
        result = answer.follow(conversation.stream(message, **settings), answer.text_writer(show_draft))
    except KeyboardInterrupt:
        if not watched:
            raise
        console.note("stopped; this turn is forgotten")
    except OutpaceError as error:
        if not watched:
            raise
        console.fail(str(error))
    else:
        console.note(answer.summary(result, settings["temperature"] > 0))


def _next(watched: bool) -> str | None:
    """Returns the next line, empty after Ctrl-C on a terminal; None when there is none.

    Raises UsageError for one that is not UTF-8; on a terminal it is told, and the line is empty.
    """
    try:
        line = _read(watched)
        return None if line is None else arguments.unicode_text("the message", line)
    except (UnicodeDecodeError, UsageError) as error:  # which of the two depends on the locale
        fault = error if isinstance(error, UsageError) else UsageError(f"a message is not UTF-8: {error.reason}")
        if not watched:
            raise fault from None
        console.fail(str(fault))
        return ""
    except KeyboardInterrupt:
        if not watched:
            raise
        # It may have been meant for the answer that has just ended: the conversation is not thrown away.
        console.note("\nCtrl-D ends the conversation")
        return ""


def _read(watched: bool) -> str | None:
    """Returns the next line without its end; None when there is none."""
    if not watched:
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None
    if sys.stdout.isatty():
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (line editing and history for input())
        try:
            return input(PROMPT)
        except EOFError:
            sys.stdout.write("\n")
            return None
    sys.stderr.write(PROMPT)
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None
