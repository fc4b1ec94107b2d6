"""`outpace bench run`, `report` and `compare`: speed beside plain decoding and other engines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import arguments, console, options
from outpace.cli.loading import load_model
from outpace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from outpace.bench.run import Run

FAILED = 1

Prompts = Annotated[
    list[Path],
    typer.Option(
        "--prompts",
        metavar="FILE",
        show_default="needed",
        help="JSON lines with 'prompt' or 'turns', and perhaps 'task' and 'id'; may be repeated.",
    ),
]
Recorded = Annotated[Path, typer.Argument(metavar="RUN.json", help="What `bench run --out` wrote.")]


def register(group: typer.Typer) -> None:
    """Adds the commands."""
    group.command("run")(run)
    group.command("report")(report)
    group.command("compare")(compare)


def run(
    prompts: Prompts,
    model: options.Model = options.EMBEDDED,
    draft: options.DraftModel = None,
    drafters: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            metavar="NAME",
            rich_help_panel=options.SPECULATION,
            show_default="auto",
            help="What to measure beside plain decoding; may be repeated.",
        ),
    ] = None,
    draft_length: options.DraftLength = None,
    rule: options.Rule = "coupled",
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="NAME", show_default="all", help="Prompts of this task; may be repeated."),
    ] = None,
    per_task: Annotated[
        int | None,
        typer.Option("--per-task", metavar="N", show_default="all", help="The first N prompts of each task."),
    ] = None,
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            metavar="NAME,..",
            show_default="none",
            help="llama.cpp, openvino, transformers, vllm: on the same file and prompts in the same run, each plain "
            "and with drafts; one that is not installed is named as missing.",
        ),
    ] = "",
    max_tokens: options.MaxTokens = 128,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Answers of each to each prompt.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the sampled texts that are compared.")] = 1,
    context: options.ContextLength = None,
    threads: options.Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="RUN.json",
            rich_help_panel=options.OUTPUT,
            show_default="none",
            help="Keep every answer there, from the first prompt on; `bench report` and `bench compare` read it.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure decoding on prompts, plain and with drafts in turns, and check that the text is the same.

    Times to first token (no prompt cached), tokens/s after it, per-token latency, tokens a step; medians over
    repeats with 95 % bootstrap intervals over prompts. The first answer of the process is cold and stands apart.
    Tokens must be plain decoding's at temperature 0 in every repeat, and at temperature 1 with the same seed; exit
    code 1 where they are not. What was measured is kept when something fails or Ctrl-C ends the run.
    """
    from outpace import models
    from outpace.bench.run import INTERRUPTED
    from outpace.bench.speed import Conditions, bench_run
    from outpace.bench.summary import summarise
    from outpace.bench.tasks import choose, read_questions
    from outpace.cli.bench_view import show_run

    questions = choose(read_questions(prompts), tasks or (), per_task)
    conditions = Conditions(
        tuple(drafters or ("auto",)),
        draft_length,
        rule,
        tuple(name for name in peers.split(",") if name),
        max_tokens,
        repeats,
        seed,
    )
    conditions.check()
    if out is not None:
        arguments.output_file("--out", out)
    keep: Callable[[Run], None] = (lambda measured: None) if out is None else (lambda measured: measured.save(out))
    with load_model(model, draft=draft, threads=threads, context=context) as loaded:
        path = models.resolve(model)
        helper = None if draft is None else models.resolve(draft)
        measured = bench_run(loaded, path, helper, questions, conditions, keep=keep, progress=_progress())
    if as_json:
        console.print_json(measured.record() | {"summary": [line.record() for line in summarise(measured)]})
    else:
        show_run(measured)
    if measured.ended == INTERRUPTED:
        raise KeyboardInterrupt  # the process ends as every interrupted command does
    if measured.ended or not all(check.holds for check in measured.checks):
        raise typer.Exit(FAILED)


def report(
    recorded: Recorded,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", show_default="beside the run", help="Where the page goes."),
    ] = None,
) -> None:
    """Write a run as one page that stands alone: plots, tables, checks and where the figures come from."""
    from outpace.bench.run import read_run
    from outpace.cli.bench_html import page

    target = recorded.with_suffix(".html") if html is None else html
    if target.suffix != ".html":
        raise UsageError(f"--html writes a page, whose name ends in .html, got {str(target)!r}")
    target.write_text(page(read_run(recorded)), encoding="utf-8")
    console.stdout().print(f"wrote {target}", soft_wrap=True)


def compare(
    before: Recorded,
    after: Recorded,
    as_json: options.Json = False,
) -> None:
    """Say whether the second run is faster than the first: paired bootstrap over the prompts of both.

    Ratios to plain decoding within each run decide, so that the machine's mood does not; for plain decoding
    itself and for other engines the ratio of tokens/s does.
    """
    from outpace.bench.comparison import compare as compared
    from outpace.bench.run import read_run
    from outpace.cli.bench_view import show_changes

    changes = compared(read_run(before), read_run(after))
    if as_json:
        console.print_json({"changes": [change.record() for change in changes]})
    else:
        show_changes(changes)


def _progress() -> Callable[[float, str], None]:
    """Returns what shows where the run is, on a terminal."""
    if not sys.stderr.isatty():
        return lambda fraction, what: None

    def show(fraction: float, what: str) -> None:
        sys.stderr.write("\r\x1b[K" if fraction >= 1 else f"\r\x1b[K{fraction:4.0%} {what:.60}")
        sys.stderr.flush()

    return show
