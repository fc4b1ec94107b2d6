"""`outpace draft`: make what drafts for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outpace.cli import arguments, console, options
from outpace.cli.loading import load_model
from outpace.errors import UsageError

Target = Annotated[
    str,
    typer.Option(
        "--for", metavar="MODEL", show_default="required", help="The target; named as --model is elsewhere."
    ),
]

MAX_LAYERS = 10_000


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Make what drafts for a model: a smaller relative, a store of texts."
    )
    group.command("make")(make)
    group.command("store")(store)
    app.add_typer(group, name="draft")


def make(
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="MODEL", show_default="required", help="The relative that is cut down: a GGUF."
        ),
    ],
    target: Target,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", show_default="required", help="The GGUF to write.")
    ],
    vocab: Annotated[
        int, typer.Option("--vocab", metavar="N", help="Tokens that the draft can say: the most frequent ones.")
    ] = 16384,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            "--text",
            metavar="FILE",
            show_default="the tokens learnt first",
            help="Texts to count tokens in: lines, or JSON lines with a prompt or turns; may be given several times.",
        ),
    ] = None,
    bits: Annotated[
        int, typer.Option("--bits", metavar="N", help="Of the layers' weights: 4, 8, or 0 for as they are.")
    ] = 4,
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="LIST", show_default="all", help="Layers to keep, such as 0-11,23."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Cut a relative of the target down to a draft: fewer tokens, fewer bits, fewer layers.

    What a drafted token costs is the bytes that it reads. The draft proposes the tokens that it kept alone; the text
    stays the target's, whatever they are.
    """
    from dataclasses import asdict

    from outpace.models.making import make_draft

    if bits not in (0, 4, 8):
        raise UsageError(f"--bits must be 4, 8, or 0 for as they are, got {bits}")
    kept = None if layers is None else numbers(layers)
    arguments.output_file("--out", out)
    cut = make_draft(
        source,
        target,
        out,
        texts=text or (),
        tokens=vocab,
        bits=bits or None,
        layers=kept,
        progress=console.progress("cutting"),
    )
    if as_json:
        console.print_json(asdict(cut) | {"path": str(cut.path)})
        return
    console.stdout().print(
        f"{cut.path}: {cut.tokens} tokens, {cut.layers} layers; a pass reads {cut.pass_bytes / 1e6:.0f} MB "
        f"instead of {cut.source_pass_bytes / 1e6:.0f}"
    )


def store(
    target: Target,
    prompts: Annotated[
        list[Path],
        typer.Option(
            "--prompts", metavar="FILE", show_default="required", help="Lines, or JSON lines with a prompt or turns."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", show_default="required", help="The store; answers join it.")
    ],
    max_tokens: options.MaxTokens = 128,
    longest_prompt: Annotated[
        int, typer.Option("--longest-prompt", metavar="N", help="Leave out prompts of more tokens.")
    ] = 400,
    threads: options.Threads = None,
) -> None:
    """Fill a store with a model's own answers, for --store of other commands."""
    from outpace.models.making import fill_store

    with load_model(target, draft=None, threads=threads, context=None, store=out) as model:
        count = fill_store(
            model,
            prompts,
            max_tokens=max_tokens,
            longest_prompt=longest_prompt,
            progress=console.progress("answering"),
        )
    console.stdout().print(f"{out}: {count} answers more")


def numbers(text: str) -> list[int]:
    """Returns the numbers of a list like 0-3,7. Raises UsageError for any other text."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            begin, end = int(first), int(last or first)
            if not 0 <= begin <= end < MAX_LAYERS:
                raise ValueError
            found += range(begin, end + 1)
    except ValueError:
        raise UsageError(f"--layers must be numbers and ranges such as 0-11,23, got {text!r:.60}") from None
    if len(set(found)) < len(found):
        raise UsageError(f"--layers names a layer twice: leave one of them out, got {text!r:.60}")
    return found
