"""The `outpace` application: its commands, and how any of them ends."""

from __future__ import annotations

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outpace.cli import (
    audit,
    bench,
    chat,
    console,
    doctor,
    draft,
    explain,
    generate,
    models,
    plan,
    serve,
    simulate,
    train,
    tune,
)
from outpace.errors import ModelNotFound, OutpaceError, Unsupported, UsageError, VocabularyMismatch

MISTAKE, FAILURE, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141
"""Exit codes; the last two are what a shell reports for SIGINT and SIGPIPE."""

_MISTAKES = (UsageError, ModelNotFound, Unsupported, VocabularyMismatch)
# Typer brings its own copy of click in some versions, so the parser's error has no import path common to all.
_ParseError: Any = typer.BadParameter.__mro__[1]


class OneLineErrors(TyperGroup):
    """A command group whose errors are one line on stderr, and whose exit codes are the ones above."""

    def main(self, *args: Any, **options: Any) -> Any:
        standalone = options.pop("standalone_mode", True)
        parser: Any = super()
        _open_missing_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(
                stream, TextIOWrapper
            ):  # a terminal that is not UTF-8 shows ?, and does not end the program
                stream.reconfigure(errors="replace")
        try:
            code = parser.main(*args, standalone_mode=False, **options)
            sys.stdout.flush()
        except _ParseError as error:
            code = _report_parse_error(error)
        except OutpaceError as error:
            console.fail(str(error))
            code = MISTAKE if isinstance(error, _MISTAKES) else FAILURE
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except MemoryError:
            console.fail("out of memory")
            code = FAILURE
        except BrokenPipeError:
            code = _broken_pipe()
        except OSError as error:
            console.fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            code = FAILURE
        if standalone:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        # Caught here, below the parser's own main(), which would answer both of these in its own way.
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(_broken_pipe()) from None


def _open_missing_streams() -> None:
    """Opens nothing to read or write for a stream that was closed when the process began, as `>&-` does.

    Python has None there, and the next file to be opened would take its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (until the process ends)


def _report_parse_error(error: Any) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "outpace"
    message = error.format_message()
    if not message:  # a group without a command: its help has been printed
        return MISTAKE
    console.fail(f"{message.rstrip('.')}{_refused_value(error)} (see {command} --help)")
    return MISTAKE


def _refused_value(error: Any) -> str:
    """Returns the words for the value that was refused, where the parser's message leaves it out."""
    faults = getattr(error.__cause__, "errors", None)
    found = faults() if callable(faults) else ()
    return f", got {found[0]['input']!r:.60}" if found and "input" in found[0] else ""


def _broken_pipe() -> int:
    # Whoever read our output has gone; the interpreter must not complain when it flushes at exit.
    with contextlib.suppress(OSError):  # a stream without a descriptor has nothing to flush
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return BROKEN_PIPE


app = typer.Typer(
    name="outpace",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Speculative decoding on a CPU: exactly the target model's text, faster.",
    epilog=(
        "Exit codes: 0 done, 1 something failed, 2 the command line asks for what cannot be done, "
        "130 interrupted, 141 the reader of the output has gone."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"outpace {version('outpace')}")
        except PackageNotFoundError:
            typer.echo("outpace, run from its source and not installed")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


generate.register(app)
chat.register(app)
models.register(app)
explain.register(app)
doctor.register(app)
bench.register(app)
plan.register(app)
draft.register(app)
tune.register(app)
audit.register(app)
serve.register(app)
simulate.register(app)
train.register(app)
