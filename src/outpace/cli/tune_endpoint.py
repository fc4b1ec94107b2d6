"""`outpace tune --endpoint`: a server measured from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from outpace.cli import console
from outpace.cli.arguments import json_object
from outpace.cli.bench_view import interval
from outpace.errors import OutpaceError, UsageError

if TYPE_CHECKING:
    from outpace.bench.endpoint import EndpointTuning

STOPPED = 1
OURS_ALONE = ("draft", "lengths", "temperature", "check", "save", "context", "threads")
"""Options of what is measured on this machine."""


def check_options(context: typer.Context) -> str | None:
    """Returns the model to ask for, if it was named. Raises UsageError for options that say nothing of a server."""
    given = [name for name in OURS_ALONE if _given(context, name)]
    if given:
        raise UsageError(f"--{given[0]} is about a model on this machine: leave it or --endpoint out")
    return str(context.params["model"]) if _given(context, "model") else None


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def tune_endpoint(
    url: str,
    name: str | None,
    prompts: Sequence[str],
    plain_fields: str | None,
    max_tokens: int,
    repeats: int,
    as_json: bool,
) -> None:
    """Measures a server and shows what was found; exit code STOPPED where it ended early."""
    from outpace.audit.server import connect
    from outpace.bench.endpoint import tune_endpoint as tuned

    if not prompts:
        raise UsageError("there is no prompt to ask")
    key = os.environ.get("OPENAI_API_KEY")
    server = connect(url, name, key=key, chat_first=True)
    plain = None
    if plain_fields is not None:
        fields = json_object("--plain-fields", plain_fields)
        plain = connect(url, name, key=key, chat_first=True, fields=fields)
    progress = _progress()
    found = tuned(server, prompts, plain=plain, max_tokens=max_tokens, repeats=repeats, progress=progress)
    progress("")
    if found.stopped and not found.answers:
        raise OutpaceError(found.stopped)
    if as_json:
        console.print_json(found.record())
    else:
        _show(found)
    if found.stopped:
        console.note(f"ended early, what was measured is above: {found.stopped}")
        raise typer.Exit(STOPPED)


def _progress() -> Callable[[str], None]:
    if not sys.stderr.isatty():
        return lambda what: None

    def show(what: str) -> None:
        sys.stderr.write(f"\r\x1b[K{what:.60}")
        sys.stderr.flush()

    return show


def _show(found: EndpointTuning) -> None:
    out = console.stdout()
    out.print(f"{found.model} at {found.url}, {len(found.answers)} prompts, greedy, tokens by the server's usage\n")
    decoding, speedup = found.decoding, found.speedup
    if decoding is not None:
        first = sorted(one.first_seconds for one in found.answers)
        out.print(
            f"{interval(decoding, 1)} tokens/s of one request after its first token; first token after "
            f"{1e3 * first[len(first) // 2]:.0f} ms"
        )
    if speedup is not None:
        out.print(f"{interval(speedup, 2)} times its own decoding without speculation")
    _show_counters(found)
    if found.tokens_per_second_at:
        loads = ", ".join(f"{load}: {speed:.1f}" for load, speed in found.tokens_per_second_at.items())
        out.print(f"tokens/s by requests at once, prompts included: {loads}", soft_wrap=True)
        out.print(f"more requests at once gave more up to {found.cut_off}, of those tried")


def _show_counters(found: EndpointTuning) -> None:
    out, counters = console.stdout(), found.counters
    if counters is None:
        out.print("acceptance is unknown: the server shows no counters of speculation at /metrics", soft_wrap=True)
        return
    if not counters.drafts:
        out.print("by its counters it drafted nothing for these prompts")
        return
    conditional = " ".join(f"{alpha:.2f}" for alpha in counters.conditional)
    out.print(
        f"by its counters {counters.accepted:,} of {counters.drafted:,} drafted tokens were accepted "
        f"({counters.acceptance_rate:.2f}), {counters.tokens_per_draft:.2f} tokens a pass with a draft"
        + (f"; by position, given those before: {conditional}" if conditional else ""),
        soft_wrap=True,
    )
    if found.independence_error is not None:
        share = 100 * found.independence_error
        out.print(f"one acceptance for all positions would overstate tokens a pass by {share:.0f} %")
    if found.best_lengths:
        lengths = ", ".join(f"{length} at c = {cost:g}" for cost, length in found.best_lengths.items())
        out.print(
            f"best draft length, up to the longest drafted, by a drafted token's cost in passes: {lengths}",
            soft_wrap=True,
        )
