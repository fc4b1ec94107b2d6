"""`outpace audit`: checks that anyone can run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.cli.arguments import json_object, output_file
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.audit.report import Report

FAILED = 1
CONTEXT = 512
"""Tokens of context that a model under audit is loaded with: checks fill it to its end."""

Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="N",
        show_default="as long as it takes",
        help="Stop after so many minutes; what did not fit is listed as not covered. Mutants are always tried.",
    ),
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        show_default="no page",
        help="Also write the report as one page that stands alone.",
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", show_default="the whole audit", help="A fixed subset, for continuous integration.")
]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="NAME", help="Audit this drafter only; may be repeated.", show_default="all"),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        show_default="the target drafts for itself",
        help="A smaller model that drafts: of the same vocabulary, or of another one with --translate.",
    ),
]
Audited = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The target: a catalogue name, a GGUF file, a folder with safetensors and config.json, or a Hub id.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Prove that the text is the model's own.")
    group.command("rules")(rules)
    group.command("model")(model)
    group.command("law")(law)
    group.command("endpoint")(endpoint)
    app.add_typer(group, name="audit")


def model(
    target: Audited = options.EMBEDDED,
    drafter: Drafters = None,
    draft: DraftModel = None,
    translate: options.Translate = None,
    minutes: Minutes = None,
    quick: Quick = False,
    engine: options.Engine = "auto",
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Check on real prompts that no draft changes the text.

    Greedy and seeded text of every registered drafter, draft length, batch and thread count against plain decoding;
    cache lengths and contents after every round; a drafter's state against a fresh one; a target that drafts for
    itself; every sampling parameter at an extreme value; ends inside a block. Then the same checks on builds with one
    fault each, which they must see. Exit code 0 only when all that ran holds.
    """
    from outpace.audit.model import QUICK, audit_model
    from outpace.audit.report import Minutes

    time = Minutes(minutes)
    _ready(html)
    run_on = EngineChoice(engine, engine, translate, device, dtype)
    with _loaded(target, draft, threads, run_on) as loaded:
        report = audit_model(
            loaded,
            reload=lambda count: _loaded(target, draft, count, run_on),
            wanted=drafter or (),
            minutes=time,
            extent=QUICK if quick else None,
            progress=_watching(),
        )
    _end(report, as_json, html)


def law(
    target: Audited = options.EMBEDDED,
    drafter: Drafters = None,
    draft: DraftModel = None,
    translate: options.Translate = None,
    minutes: Minutes = None,
    quick: Quick = False,
    engine: options.Engine = "auto",
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Test the law of the next three tokens of the real loop against the target's exact law.

    Every lossless rule, on chains and trees that are often wrong and with every registered drafter; temperature 1,
    0.7 with top_p 0.9, top_k 20, min_p 0.1, and penalties. Pearson's chi-square with fixed seeds; number of texts,
    level and power are stated. Then the same test on loops with one fault each, which it must see. Exit code 0 only
    when all that ran holds.
    """
    from outpace.audit.law import QUICK_LAW, audit_law
    from outpace.audit.report import Minutes

    time = Minutes(minutes)
    _ready(html)
    run_on = EngineChoice(engine, engine, translate, device, dtype)
    with _loaded(target, draft, threads, run_on) as loaded:
        report = audit_law(
            loaded,
            wanted=drafter or (),
            minutes=time,
            extent=QUICK_LAW if quick else None,
            progress=_watching(),
        )
    _end(report, as_json, html)


def endpoint(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, http://HOST:PORT with or without /v1.")],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="URL",
            show_default="the server itself",
            help="The same model on a server without speculation, to compare greedy texts with.",
        ),
    ] = None,
    reference_fields: Annotated[
        str | None,
        typer.Option(
            "--reference-fields",
            metavar="JSON",
            show_default="none",
            help="Fields that requests to the reference carry besides. With outpace serve at both URLs "
            """'{"speculation": {"off": true}}' compares it with itself without drafts.""",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", show_default="the first it serves", help="What to ask for."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Longest wait for one whole answer.")
    ] = 60.0,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=50, help="Texts of three tokens for each sampled law.")
    ] = 400,
    rounding: Annotated[
        float,
        typer.Option(
            "--rounding",
            metavar="NATS",
            min=0,
            max=1,
            help="How far a request's company may move a log-probability; 0.125 for a server in bfloat16.",
        ),
    ] = 0.05,
    minutes: Minutes = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Check any OpenAI-compatible server by its answers.

    Greedy text against a reference, each first difference classed as a numeric near-tie or a fault; greedy tokens
    and sampled frequencies against the log-probabilities that the server reports; stop strings, max_tokens, usage,
    streams and requests at the same time. What the server does not offer is not covered, never passed. A key is read
    from OPENAI_API_KEY. Exit code 0 only when all that ran holds.
    """
    import os

    from outpace.audit.endpoint import EndpointExtent, audit_endpoint
    from outpace.audit.report import Minutes
    from outpace.audit.server import connect

    time = Minutes(minutes)
    _ready(html)
    key = os.environ.get("OPENAI_API_KEY")
    fields = _fields(reference_fields, reference)
    server = connect(url, name, timeout=timeout, key=key)
    other = None if reference is None else connect(reference, name, timeout=timeout, key=key, fields=fields)
    extent = EndpointExtent(samples=samples, rounding=rounding)
    report = audit_endpoint(server, other, minutes=time, extent=extent, progress=_watching())
    _end(report, as_json, html)


def _fields(record: str | None, reference: str | None) -> dict[str, object]:
    """Returns the fields of --reference-fields. Raises UsageError for what is no object, or has no reference."""
    if record is None:
        return {}
    if reference is None:
        raise UsageError("--reference-fields says what requests to --reference carry: name a reference")
    return json_object("--reference-fields", record)


def _loaded(target: str, draft: str | None, threads: int | None, run_on: EngineChoice) -> Model:
    return load_model(target, draft=draft, threads=threads, context=CONTEXT, engine=run_on)


def _ready(html: str | None) -> None:
    from outpace.cli import audit_html

    if html is not None:
        audit_html.check_name(html)
        output_file("--html", html)


def _end(report: Report, as_json: bool, html: str | None) -> None:
    """Shows a report in the forms that were asked for; exit code FAILED unless it holds."""
    from outpace.cli import audit_html, audit_view

    _clear()
    if html is not None:
        audit_html.write(html, report)
        console.note(f"report written to {html}")
    if as_json:
        console.print_json(report.record())
    else:
        audit_view.show(report)
    if not report.holds:
        raise typer.Exit(FAILED)


def _watching() -> Callable[[str], None]:
    """Returns what tells a person at a terminal what comes next, and nobody else."""
    return _progress if sys.stderr.isatty() else lambda what: None


def rules(minutes: Minutes = None, html: Html = None, as_json: options.Json = False) -> None:
    """Enumerate the exact law of every rule, in rational arithmetic and without a model.

    Small vocabularies, chains and trees, every outcome of the randomness: a lossless rule must have exactly the
    target's law, a lossy one must be seen to have another, and each of the broken rules kept for the purpose must be
    seen to be broken. Exit code 0 only when all of it holds.
    """
    from outpace.audit.report import Minutes
    from outpace.audit.rules import audit_rules
    from outpace.cli import audit_html, audit_rules_view

    time = Minutes(minutes)
    _ready(html)
    report = audit_rules(_watching(), time)
    _clear()
    if html is not None:
        audit_html.write(html, report.report())
        console.note(f"report written to {html}")
    if as_json:
        console.print_json(report.record())
    else:
        audit_rules_view.show(report)
    if not report.holds:
        raise typer.Exit(FAILED)


def _progress(what: str) -> None:
    sys.stderr.write(f"\r\x1b[K{what} ...")
    sys.stderr.flush()


def _clear() -> None:
    """Takes away what `_progress` wrote."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
