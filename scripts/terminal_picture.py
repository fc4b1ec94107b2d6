#!/usr/bin/env python3
"""Runs a command on a pseudo-terminal and writes what it showed as an SVG picture.

python scripts/terminal_picture.py OUT.svg COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, command = sys.argv[1], sys.argv[2:]
    os.environ["COLUMNS"] = str(WIDTH)
    shown = bytearray()

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        shown.extend(data)
        return data

    status = pty.spawn(command, keep)
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text("$ " + shlex.join(["outpace", *command[1:]]), style="bold"))
    console.print(Text.from_ansi(shown.decode(errors="replace").replace("\r\n", "\n")))
    svg = console.export_svg(title="outpace")
    # Without the fonts that the template fetches from the network: the reader's own monospace will do.
    Path(out).write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
