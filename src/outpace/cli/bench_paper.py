"""`outpace bench paper`: the founding paper's experiment with T5."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from outpace.bench.paper import Line


def paper(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="MODEL", show_default="needed", help="T5 or its kind: a folder or a Hub id."
        ),
    ],
    draft: Annotated[
        str, typer.Option("--draft", metavar="MODEL", show_default="needed", help="A smaller one that drafts.")
    ],
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task", metavar="NAME", show_default="both", help="translation or summarisation; may be repeated."
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            show_default="a few of our own",
            help="One text a line, of one task; T5's own words are put before each.",
        ),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option("--temperature", "-t", metavar="X", show_default="0 and 1", help="May be repeated."),
    ] = None,
    draft_length: Annotated[
        int | None,
        typer.Option(
            "--draft-length", metavar="N", min=1, show_default="the paper's: 7 and 5", help="Tokens a draft."
        ),
    ] = None,
    rule: options.Rule = "rejection",
    max_tokens: options.MaxTokens = 128,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Repeat the founding paper's experiment: T5 translates and summarises, a smaller T5 drafts.

    Acceptance, cost of a draft and speed-up as measured, beside what the paper's theorem 3.8 makes of the first two
    and what it reports of T5-XXL (11B) with T5-small on a TPU. Plain and drafted runs are interleaved; intervals are
    bootstraps over texts. The paper's models: google/t5-v1_1-small to -xxl, or t5-small to t5-11b.
    """
    from outpace.bench.paper import EXPERIMENTS, run_paper

    chosen = tasks or list(EXPERIMENTS)
    if texts is not None and len(chosen) != 1:
        raise UsageError("--texts are of one task: name it with --task")
    given = _read(texts) if texts is not None else ()
    run_on = EngineChoice("torch", "torch", device=device, dtype=dtype)
    with load_model(model, draft=draft, threads=threads, context=None, engine=run_on) as loaded:
        lines = run_paper(
            loaded,
            chosen,
            temperatures=temperature or (0.0, 1.0),
            texts=given,
            draft_length=draft_length,
            rule=rule,
            max_tokens=max_tokens,
            progress=console.progress("measuring"),
        )
    if as_json:
        console.print_json({"model": model, "draft": draft, "rule": rule, "lines": [line.record() for line in lines]})
    else:
        console.stdout().print(_table(lines))
        if remark := _remark(lines):
            console.note(remark)


def _read(file: Path) -> tuple[str, ...]:
    try:
        found = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read as text: {error}") from None
    if not found:
        raise UsageError(f"{file} has no text: give one a line")
    return found


def _table(lines: list[Line]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("task")
    for title in ("T", "draft", "alpha", "c", "tok/step", "eq. 1", "thm 3.8", "x plain", "95 %", "paper"):
        table.add_column(title, justify="right")
    for line in lines:
        low, high = line.speedup.low, line.speedup.high
        table.add_row(
            line.task,
            f"{line.temperature:g}",
            str(line.draft_length),
            f"{line.acceptance.value:.2f}",
            f"{line.cost:.2f}",
            f"{line.tokens_per_step:.2f}",
            f"{line.expected:.2f}",
            f"{line.predicted:.2f}",
            f"{line.speedup.value:.2f}",
            "" if low is None or high is None else f"{low:.2f}-{high:.2f}",
            f"{line.published.acceptance:.2f}, {line.published.speedup:.1f}x" if line.published else "",
        )
    return table


def _remark(lines: list[Line]) -> str | None:
    """Returns what is said of greedy texts, None where none were made."""
    greedy = [line for line in lines if line.equal is not None]
    if not greedy:
        return None
    apart = [line.task for line in greedy if not line.equal]
    return f"greedy texts differ in {', '.join(apart)}" if apart else "greedy texts are plain decoding's"
