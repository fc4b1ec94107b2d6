#!/usr/bin/env python3
"""Runs the acceptance lines of a part and prints figure, interval, floor and verdict of each.

    python scripts/accept.py first-light [--only NAME ...] [--json FILE]

A part is a module `accept_<part>.py` beside this file, whose LINES are (name, claim, function); a function returns
the Outcomes it measured. A line whose model or extra is absent is "not run", with the reason, and fails nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from acceptance import Line, NotRun, Outcome
from rich.console import Console
from rich.table import Table


def run(lines: list[Line], console: Console) -> list[dict[str, object]]:
    """Returns one record an outcome, printing each line's table as soon as it is measured."""
    records: list[dict[str, object]] = []
    for name, claim, measure in lines:
        outcomes: list[Outcome] = []
        try:
            outcomes.extend(measure())
        except NotRun as reason:
            outcomes.append(Outcome(name, str(reason), "", None))
        except Exception as error:  # one broken line must not hide the others
            traceback.print_exc()
            outcomes.append(Outcome(name, f"{type(error).__name__}: {error}", "", False))
        table = Table(
            "what", "figure", "interval", "bound", "verdict", title=f"{name}: {claim}", title_justify="left"
        )
        for o in outcomes:
            verdict = {True: "[green]holds", False: "[red]FAILS", None: "[yellow]not run"}[o.passed]
            table.add_row(o.what, o.figure, o.interval, o.bound, verdict)
            records.append({"line": name, **asdict(o)})
        console.print(table)
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(f.stem[7:].replace("_", "-") for f in parts()))
    parser.add_argument("--only", nargs="*", default=[], help="names of lines")
    parser.add_argument("--json", type=Path, help="also write the records there")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server, for the part `serve`")
    options = parser.parse_args()
    if options.llama_server is not None:
        os.environ["OUTPACE_LLAMA_SERVER"] = str(options.llama_server.resolve())
    module = importlib.import_module("accept_" + options.part.replace("-", "_"))
    lines = [line for line in module.LINES if not options.only or line[0] in options.only]
    records = run(lines, Console(width=150))
    if options.json:
        options.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
    failed = sum(record["passed"] is False for record in records)
    print(f"{sum(record['passed'] is True for record in records)} passed, {failed} failed")
    return 1 if failed else 0


def parts() -> list[Path]:
    return list(Path(__file__).parent.glob("accept_*.py"))


if __name__ == "__main__":
    sys.exit(main())
