"""`outpace tune`: what pays on this machine, with this model and these prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.cli.bench_view import interval
from outpace.cli.loading import load_model
from outpace.cli.tune_endpoint import check_options, tune_endpoint
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.bench.tuning import Tuning


DRIFT = 1.1
"""Slowest over fastest plain round from which on it is said that the machine changed."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tune")(tune)


def tune(
    ctx: typer.Context,
    model: options.Model = options.EMBEDDED,
    draft: options.DraftModel = None,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            show_default="eight of our own",
            help="JSON lines with 'prompt' or 'turns', such as you will ask; may be repeated.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            show_default="a model on this machine",
            help="Measure an OpenAI-compatible server from outside instead; --model is then the name to ask for. "
            "A key is read from OPENAI_API_KEY.",
        ),
    ] = None,
    plain_fields: Annotated[
        str | None,
        typer.Option(
            "--plain-fields",
            metavar="JSON",
            show_default="none",
            help="With --endpoint: fields of a request that make the server decode plainly, to compare with. "
            """Of outpace serve '{"speculation": {"off": true}}'.""",
        ),
    ] = None,
    per_task: Annotated[
        int | None,
        typer.Option("--per-task", metavar="N", show_default="all", help="The first N prompts of each task."),
    ] = None,
    lengths: Annotated[
        str, typer.Option("--lengths", metavar="N,N,..", help="Draft lengths to weigh, rising.")
    ] = "1,2,3,4,5,7",
    max_tokens: options.MaxTokens = 96,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", help="Of the laws that are compared position by position.")
    ] = 1.0,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            show_default="check",
            help="Run every setting after predicting it, in turns with plain decoding.",
        ),
    ] = True,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Runs of each setting at each prompt.")] = 2,
    save: Annotated[
        bool,
        typer.Option("--save/--no-save", show_default="save", help="Keep the costs for later runs on this machine."),
    ] = True,
    context: options.ContextLength = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure what passes and drafts cost and how often drafts are right, then say what to use.

    T(n) by rows and what drafting takes between two passes, each drafter replayed on the model's own plain answers,
    and for a draft model beta = 1 - D_TV position by position from the full laws. From these the speed-up of every
    drafter and length is predicted, without a round that decoded what it drafted, and then measured. The costs are
    saved; later runs begin with them. The text never depends on it.

    Of a server: tokens/s by its own usage, alone and with others at once, and the acceptance that its counters at
    /metrics show (vLLM's names). When it goes away half-way, what was measured is kept; the exit code is then 1.
    """
    from outpace.audit.prompts import PROMPTS
    from outpace.bench.provenance import provenance
    from outpace.bench.tasks import choose, read_questions
    from outpace.bench.tuning import tune as tuned

    wanted = _lengths(lengths)
    served = check_options(ctx) if endpoint else None
    if plain_fields is not None and not endpoint:
        raise UsageError("--plain-fields is of requests to a server: name it with --endpoint URL")
    for name, value, least in (("max_tokens", max_tokens, 16), ("repeats", repeats, 1)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if not 0 < temperature <= 10:
        raise UsageError(f"temperature must be in (0, 10], got {temperature}")
    if per_task is not None and not prompts:
        raise UsageError("--per-task chooses from --prompts FILE: name one, or leave it out")
    asked = list(PROMPTS)
    if prompts:
        asked = [question.text for question in choose(read_questions(prompts), (), per_task)]
    if endpoint:
        tune_endpoint(endpoint, served, asked, plain_fields, max_tokens, repeats, as_json)
        return
    with load_model(model, draft=draft, threads=threads, context=context) as loaded:
        found = tuned(
            loaded,
            asked,
            max_tokens=max_tokens,
            lengths=wanted,
            repeats=repeats,
            check=check,
            temperature=temperature,
            provenance=provenance(),
            progress=_progress(),
        )
        saved = found.save(loaded) if save else None
    if as_json:
        console.print_json(found.record() | {"saved": None if saved is None else str(saved)})
    else:
        _show(found, saved)


def _lengths(text: str) -> tuple[int, ...]:
    from outpace.control import LONGEST

    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or list(found) != sorted(set(found)) or not 1 <= found[0] <= found[-1] <= LONGEST:
        raise UsageError(f"--lengths must be rising numbers in [1, {LONGEST}] between commas, got {text!r:.80}")
    return found


def _progress() -> Callable[[float, str], None]:
    """Returns what shows the stage, on a terminal."""
    if not sys.stderr.isatty():
        return lambda fraction, what: None

    def show(fraction: float, what: str) -> None:
        sys.stderr.write(f"\r\x1b[K{what:.60}")
        sys.stderr.flush()

    return show


def _show(found: Tuning, saved: Path | None) -> None:
    from rich.table import Table

    out = console.stdout()
    draft = f", draft {found.draft}" if found.draft else ""
    out.print(f"{found.model}{draft}, {found.threads} threads, {found.prompts} prompts, greedy\n", soft_wrap=True)
    one = found.seconds_by_rows[1]
    costs = ", ".join(f"{rows}: {seconds / one:.2f}" for rows, seconds in found.seconds_by_rows.items())
    out.print(f"a round of one row takes {1e3 * one:.2f} ms; by rows, times that: {costs}\n", soft_wrap=True)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("drafter", no_wrap=True)
    for title in ("length", "tokens a step", "accepted", "cost c", "predicted", "measured", "off by"):
        table.add_column(title, justify="right")
    for setting in found.settings:
        table.add_row(
            setting.drafter,
            str(setting.draft_length),
            f"{setting.tokens_per_step:.2f}",
            "-" if setting.acceptance_rate is None else f"{setting.acceptance_rate:.2f}",
            f"{setting.draft_cost:.3f}",
            f"{setting.predicted:.2f}",
            "" if setting.measured is None else interval(setting.measured, 2),
            "" if setting.error is None else f"{100 * setting.error:+.0f} %",
            style="bold" if setting == found.chosen else None,
        )
    out.print(table)
    out.print()
    for line in (*_remarks(found), "" if saved is None else f"saved for later runs on this machine: {saved}"):
        if line:
            out.print(line, soft_wrap=True)


def _remarks(found: Tuning) -> Iterator[str]:
    if found.drift > DRIFT:
        turns = ", ".join(f"{1e3 * seconds:.2f}" for seconds in found.plain_seconds)
        yield f"the machine changed meanwhile: a round of one row took {turns} ms, so believe ratios more than times"
    for name, share in found.independence.items():
        yield f"{name}: one acceptance for all positions would overstate tokens a step by {100 * share:.0f} %"
    agreement = found.agreement
    if agreement is not None:
        low, middle, high = agreement.quartiles
        yield (
            f"beta = 1 - D_TV at temperature {agreement.temperature:g}: mean {agreement.mean:.3f}, quartiles "
            f"{low:.2f}, {middle:.2f}, {high:.2f} over {sum(map(len, agreement.beta))} positions; by position "
            + " ".join(f"{value:.2f}" for value in agreement.by_position()[:16])
        )
        rules = ", ".join(f"{rule} {value:.2f}" for rule, value in agreement.accepted.items())
        yield f"expected accepted tokens of a draft of {agreement.length}: {rules}"
    if found.chosen is None:
        yield "recommended: no drafts; no setting gains more than 5 %"
        return
    load = "as many requests as were measured" if found.cut_off is None else f"{found.cut_off} requests at once"
    yield (
        f"recommended: --drafter {found.chosen.drafter} --draft-length {found.chosen.draft_length} "
        f"--rule {found.rule}; predicted to pay for up to {load}"
    )
