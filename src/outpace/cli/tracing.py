"""`outpace generate --trace`: every round of one request, on the terminal or as a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.cli import arguments, console
from outpace.cli.answer import Request, Show, run, summary

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.result import Result
    from outpace.trace import Tracer

TERMINAL = "-"
"""The value of --trace without a file."""

GREEDY = "greedy: p is 1 on the token with the largest logit; --temperature 1 shows the model's own law"


def trace(model: Model, request: Request, show: Show) -> None:
    from outpace.cli.stream import Silent
    from outpace.registry import RULES
    from outpace.trace import Tracer

    seed = arguments.seed_or_new(request.settings["seed"])
    out = console.stderr()

    def on_round(one: Any) -> None:
        from outpace.cli.trace import render

        for line in render(one, model.text.describe):
            out.print(line, soft_wrap=True)
        out.print()

    to_terminal = show.trace == TERMINAL and not show.as_json
    if to_terminal and not request.sampled:
        console.note(GREEDY)
    tracer = Tracer(RULES.get(request.settings["rule"])(), seed, on_round if to_terminal else lambda one: None)
    result = run(model, request, Silent(), seed=seed, observer=tracer)
    if show.trace not in (None, TERMINAL):
        _write_page(Path(str(show.trace)), model, request, result, tracer)
    if show.as_json:
        record = result.record()
        if show.trace == TERMINAL:
            record["rounds"] = [one.record() for one in tracer.rounds]
        console.print_json(record)
        return
    from outpace.cli.stream import TextWriter

    writer = TextWriter()
    writer.write(result.text)
    writer.end()
    console.note(summary(result, request.sampled))
    if show.trace != TERMINAL:
        console.note(f"trace of {len(tracer.rounds)} rounds written to {show.trace}")


def _write_page(file: Path, model: Model, request: Request, result: Result, tracer: Tracer) -> None:
    from outpace.cli.trace_html import Piece, page

    detokeniser = model.text.detokeniser()
    pieces = [
        Piece(detokeniser.feed((token,)), origin, one.number)
        for one in tracer.rounds
        for token, origin in zip(one.tokens, one.origins, strict=True)
    ]
    rate = result.acceptance_rate
    facts = {
        "prompt": request.prompt,
        "target": result.model,
        "engine": result.engine,
        "drafter": f"{result.drafter}: {result.reason}",
        "rule": result.rule,
        "sampling": ", ".join(_sampling(request.settings)),
        "seed": str(result.seed),
        "tokens": f"{len(result.tokens)} in {len(tracer.rounds)} rounds, {result.tokens_per_step:.2f} a round",
        "accepted": "nothing drafted" if rate is None else f"{result.accepted} of {result.drafted}, {rate:.3f}",
    }
    file.write_text(page("outpace trace", facts, pieces, tracer.rounds, model.text.describe), encoding="utf-8")


def _sampling(settings: dict[str, Any]) -> Iterator[str]:
    """Yields what the page says about the law: the filters, and of the rest what was asked for."""
    for name in ("temperature", "top_p", "top_k", "min_p"):
        yield f"{name} {settings[name]}"
    for name, off in (
        ("repetition_penalty", 1),
        ("presence_penalty", 0),
        ("frequency_penalty", 0),
        ("min_tokens", 0),
    ):
        if settings[name] != off:
            yield f"{name} {settings[name]}"
    for name in ("logit_bias", "banned", "allowed", "stop_ids", "grammar"):
        if settings[name]:
            yield f"{name} {settings[name]}"
