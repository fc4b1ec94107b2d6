"""What options say together: checked, and turned into what the library takes."""

from __future__ import annotations

import json
import os
import secrets
from itertools import zip_longest
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.grammar import Grammar

MAX_PREDICTION = 4 << 20
"""Bytes of an expected answer."""


class OptionalTraceFile(TyperCommand):
    """A command whose --trace may stand alone: only what ends in .html is its file, not any next argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, rest = (args[: args.index("--")], args[args.index("--") :]) if "--" in args else (args, [])
        spelt = [
            "--trace=-" if word == "--trace" and not following.endswith(".html") else word
            for word, following in zip_longest(words, words[1:], fillvalue="")
        ]
        return super().parse_args(ctx, spelt + rest)


def trace_file(trace: str | None) -> str | None:
    """Returns where a trace goes. Raises UsageError for a file that is no page or cannot be written."""
    if trace is not None and trace != "-" and not trace.endswith(".html"):
        raise UsageError(f"--trace writes a page, whose name ends in .html, got {trace!r}")
    if trace is not None and trace != "-":
        output_file("--trace", trace)
    return trace


def output_file(option: str, file: str | Path) -> None:
    """Raises UsageError for a file that could not be written once the work is done."""
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder: name a file")
    if path.exists() and not path.is_file():  # a device would be replaced by the file
        raise UsageError(f"{option} {path} is no ordinary file: name one")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} {path} cannot be written: no permission")
    if not path.exists():
        try:  # permissions are not all that a file system asks for
            with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:64]}."):
                pass
        except OSError as error:
            raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from None


def chosen_drafter(drafter: str, draft: str | None, draft_length: int | None, no_speculation: bool) -> str:
    """Returns the drafter that the options agree on. Raises UsageError when they contradict each other."""
    if no_speculation:
        others = {"--drafter": drafter not in ("auto", "none"), "--draft": draft, "--draft-length": draft_length}
        given = [name for name, value in others.items() if value]
        if given:
            raise UsageError(f"--no-speculation and {given[0]} contradict each other: leave one of them out")
        return "none"
    if draft is not None and drafter not in ("auto", "model", "mixture", "translate"):
        raise UsageError(
            f"--draft MODEL is for the drafters 'model', 'mixture' and 'translate', got --drafter {drafter}: "
            "leave one of them out"
        )
    if drafter == "model" and draft is None:
        raise UsageError("--drafter model needs a draft model: --draft MODEL (outpace models drafts lists some)")
    return drafter


def token_biases(arguments: list[str] | None) -> dict[int, float]:
    """Returns token -> bias of arguments like 42=-1.5. Raises UsageError for any other."""
    biases: dict[int, float] = {}
    for argument in arguments or ():
        name, _, value = argument.partition("=")
        try:
            token, bias = int(name), float(value)
        except ValueError:
            raise UsageError(f"--logit-bias must be a token id and a number, ID=X, got {argument!r:.60}") from None
        if token in biases:
            raise UsageError(f"--logit-bias names token {token} twice: leave one of them out")
        biases[token] = bias
    return biases


def grammar(schema_file: str | None, pattern: str | None) -> Grammar | None:
    """Returns what the text must look like. Raises UsageError for both at once, and for a file that has no schema."""
    from outpace.grammar import MAX_SCHEMA, JsonSchema, Regex

    if schema_file is not None and pattern is not None:
        raise UsageError("--json-schema and --regex each say what the whole text is: leave one of them out")
    if pattern is not None:
        return Regex(pattern)
    if schema_file is None:
        return None
    return JsonSchema(file_text("--json-schema", schema_file, 4 * MAX_SCHEMA))  # a character has up to four bytes


def file_text(option: str, file: str, most: int) -> str:
    """Returns the text of the file that an option names. Raises UsageError, also for more than `most` bytes."""
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from None
    if len(content) > most:
        raise UsageError(f"{option} {file} is larger than {most / (1 << 20):g} MiB: give the part that counts")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {file} is not UTF-8: byte {error.start}") from None


def unicode_text(what: str, text: str) -> str:
    """Returns the text. Raises UsageError for one that the shell gave in bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not UTF-8: after {error.start} characters") from None
    return text


def prediction(file: str | None) -> str | None:
    """Returns the expected answer. Raises UsageError for a file that is empty or no text."""
    text = None if file is None else file_text("--predict", file, MAX_PREDICTION)
    if text == "":
        raise UsageError(f"--predict {file} is empty: leave it out")
    return text


def seed_or_new(seed: int | None) -> int:
    """Returns the seed, or a new one for a request that is run or explained more than once."""
    return secrets.randbits(32) if seed is None else seed


def json_object(option: str, text: str) -> dict[str, Any]:
    """Returns the object that an option's text is. Raises UsageError for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{option} must be a JSON object, got {text!r:.60}")
    return found
