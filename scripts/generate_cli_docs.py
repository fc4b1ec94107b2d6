"""Writes docs/cli.md from the application itself; `--check` only says whether the file is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from typer.main import get_command

from outpace.cli.app import app

DOCS = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# The command line

Made from the application by `python scripts/generate_cli_docs.py`; a test keeps it up to date.
"""


def page() -> str:
    """Returns the whole page."""
    root: Any = get_command(app)
    lines = [HEAD, f"{root.help}\n", f"{root.epilog}\n"]
    for name, command in sorted(root.commands.items()):
        lines += section(f"outpace {name}", command)
    return "\n".join(lines).rstrip() + "\n"


def section(title: str, command: Any) -> Iterator[str]:
    """Yields the lines of one command, and of the commands under it."""
    yield f"## {title}\n"
    yield f"{cleandoc(command.help or '').split(chr(12))[0]}\n"
    if hasattr(command, "commands"):
        for name, below in sorted(command.commands.items()):
            yield from section(f"{title} {name}", below)
        return
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option"]
    usage = " ".join([title, *(written(argument) for argument in arguments), "[OPTIONS]"])
    yield f"    {usage}\n"
    yield "| | default | |\n|---|---|---|"
    for parameter in (*arguments, *options):
        yield f"| {names(parameter)} | {default(parameter)} | {cell(parameter.help or '')} |"
    yield ""


def names(parameter: Any) -> str:
    """Returns how a parameter is written."""
    if parameter.param_type_name == "argument":
        return f"`{written(parameter)}`"
    value = f" {parameter.metavar}" if parameter.metavar else ""
    return ", ".join(f"`{name}{value if name.startswith('--') else ''}`" for name in parameter.opts[::-1])


def written(argument: Any) -> str:
    """Returns an argument as a usage line has it."""
    name = f"{argument.metavar}..." if argument.nargs == -1 else argument.metavar
    return name if argument.required else f"[{name}]"


def default(parameter: Any) -> str:
    """Returns what a parameter is when it is left out."""
    if isinstance(parameter.show_default, str):
        return cell(parameter.show_default)
    return "" if parameter.default is None or parameter.default is False else f"`{parameter.default}`"


def cell(text: str) -> str:
    """Returns the text as one cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def main() -> None:
    written = page()
    if "--check" in sys.argv[1:]:
        if not DOCS.is_file() or DOCS.read_text() != written:
            sys.exit(f"{DOCS} is out of date: python scripts/generate_cli_docs.py")
        return
    DOCS.parent.mkdir(exist_ok=True)
    DOCS.write_text(written)


if __name__ == "__main__":
    main()
