"""`outpace models`: what there is, what is here, and what can draft for what."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from outpace.cli import console, options
from outpace.cli.pulling import pulling

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="A catalogue name, a GGUF file, a folder, or a Hugging Face id (owner/name or owner/name:quant).",
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL", show_default=False, help="Catalogue names, or Hugging Face ids (owner/name:quant)."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="List, fetch and remove models, and find drafts for them.")
    group.command("list")(list_)
    group.command("pull")(pull)
    group.command("path")(path)
    group.command("rm")(rm)
    group.command("drafts")(drafts)
    group.command("export")(export)
    app.add_typer(group, name="models")


def list_(as_json: options.Json = False) -> None:
    """List the catalogue, and what else was pulled."""
    from rich.table import Table

    from outpace.models import cache_folder, list_models

    listed = list_models()
    if as_json:
        console.print_json({"cache": str(cache_folder()), "models": [_plain(model) for model in listed]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("name", "model", "licence"):
        table.add_column(title, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    for model in listed:
        here = "yes" if model.path else "no"
        table.add_row(model.name, model.title, model.licence, f"{model.size / 1e6:.0f} MB", here)
    console.stdout().print(table)
    console.note(f"cache: {cache_folder()}")


def pull(names: Names) -> None:
    """Fetch models, check their hashes, and print where they are; what is here already is not fetched again."""
    from outpace import models

    for name in names:
        with pulling(name) as progress:
            file = models.pull(name, progress)
        sys.stdout.write(f"{file}\n")
        sys.stdout.flush()


def path(name: Name) -> None:
    """Print where a model is on this machine; fetches nothing."""
    from outpace import models

    sys.stdout.write(f"{models.resolve(name, allow_pull=False)}\n")


def rm(names: Names) -> None:
    """Remove pulled models from the cache."""
    from outpace import models

    for name in names:
        console.note(f"removed {models.remove(name)}")


def drafts(name: Name, as_json: options.Json = False) -> None:
    """Say which models can draft for MODEL, and why the others cannot."""
    from outpace import models

    choices = models.drafts_for(models.resolve(name, allow_pull=False))
    if as_json:
        console.print_json({"target": name, "drafts": [_plain(choice) for choice in choices]})
        return
    if not choices:
        console.note("no other model is known here")
    out = console.stdout()
    for choice in choices:
        out.print(f"{'yes' if choice.usable else 'no ':3}  {choice.name}: {choice.reason}", soft_wrap=True)


def export(
    name: Name,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="The folder to write; it must not exist yet.")
    ],
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="Of the weights: bfloat16 or float32.")
    ] = "bfloat16",
) -> None:
    """Write MODEL as a folder of transformers: config.json, safetensors, tokenizer and chat template."""
    from outpace import models

    with pulling(name) as progress:
        file = models.resolve(name, progress=progress)
    sys.stdout.write(f"{models.export(file, folder, dtype)}\n")


def _plain(record: Any) -> dict[str, Any]:
    """Returns a dataclass's fields with its path as text."""
    return asdict(replace(record, path=str(record.path) if record.path else None))
