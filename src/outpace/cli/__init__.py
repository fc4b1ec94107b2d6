"""The command line: what a person types and sees. Nothing numeric is computed here."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `outpace` on the process's own arguments and exits."""
    try:
        from outpace.cli.app import app

        app(prog_name="outpace")
    except KeyboardInterrupt:
        # Before the application could take over: while it was being imported.
        sys.exit(130)
