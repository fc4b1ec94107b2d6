"""`outpace plan`: which drafter, how many tokens, will it fit, will it pay."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.theory.engine_settings import Chosen
    from outpace.theory.planner import Plan

DTYPE, CONTEXT, CONCURRENCY, TASKS, SOURCE_TOKENS = "bf16", 1024, "1,8,64", "all", 512
MEMORY_EFFICIENCY, COMPUTE_EFFICIENCY, RESERVE = 0.85, 0.65, 1.0
"""Defaults: another value is for a target, and refused without one."""

LOAD, ASSUMED = "Load", "Assumptions"
"""Panels of the help."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plan")(plan)


def plan(
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="MODEL",
            rich_help_panel=options.MODEL,
            show_default="none: from --acceptance and --cost alone",
            help="A preset (llama-3.1-8b, ..), a config.json, a folder with one, or a hub id (owner/name).",
        ),
    ] = None,
    drafts: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            metavar="MODEL",
            rich_help_panel=options.MODEL,
            show_default="every smaller preset of the family",
            help="A draft model to weigh, named as the target is; may be repeated.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", rich_help_panel=options.MODEL, help="How weights are held.")
    ] = DTYPE,
    draft_dtype: Annotated[
        str | None,
        typer.Option(
            "--draft-dtype",
            metavar="NAME",
            rich_help_panel=options.MODEL,
            show_default="the target's",
            help="How a draft's weights are held.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            rich_help_panel=LOAD,
            show_default="none: needed with --target",
            help="h100, h200, l40s, rtx-4090, apple-m4, epyc-9654, .., or memory=GB,bandwidth=GB/s,rate=TFLOP/s.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", rich_help_panel=LOAD, help="Devices that share each model.")
    ] = 1,
    context: Annotated[
        int,
        typer.Option("--context", metavar="N", rich_help_panel=LOAD, help="Tokens of a request, prompt and answer."),
    ] = CONTEXT,
    source_tokens: Annotated[
        int | None,
        typer.Option(
            "--source-tokens",
            metavar="N",
            rich_help_panel=LOAD,
            show_default=str(SOURCE_TOKENS),
            help="Tokens of an encoder-decoder's source.",
        ),
    ] = None,
    concurrency: Annotated[
        str,
        typer.Option(
            "--concurrency",
            metavar="N,N,..",
            rich_help_panel=LOAD,
            help="Requests at once. The first is planned for, the others show what load does.",
        ),
    ] = CONCURRENCY,
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            metavar="NAME,..",
            rich_help_panel=LOAD,
            help="all, code, maths, chat, qa, summarisation, translation, rag: which acceptances to assume.",
        ),
    ] = TASKS,
    latency_target: Annotated[
        float | None,
        typer.Option(
            "--latency-target",
            metavar="MS",
            rich_help_panel=LOAD,
            show_default="none",
            help="Milliseconds a token that a request may take.",
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            "--acceptance",
            metavar="X",
            rich_help_panel=ASSUMED,
            show_default="by task, with its source",
            help="Share of a draft model's tokens that is accepted; draft=X,eagle=X,ngram=X for other drafters.",
        ),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            "--cost",
            metavar="C",
            rich_help_panel=ASSUMED,
            show_default="from bytes and bandwidth",
            help="Time of one drafted token over that of one plain pass.",
        ),
    ] = None,
    slope: Annotated[
        float,
        typer.Option(
            "--slope",
            metavar="S",
            rich_help_panel=ASSUMED,
            help="Share of a pass that each further row costs; for --acceptance and --cost alone.",
        ),
    ] = 0.0,
    memory_efficiency: Annotated[
        float,
        typer.Option(
            "--memory-efficiency", metavar="X", rich_help_panel=ASSUMED, help="Share of the bandwidth reached."
        ),
    ] = MEMORY_EFFICIENCY,
    compute_efficiency: Annotated[
        float,
        typer.Option("--compute-efficiency", metavar="X", rich_help_panel=ASSUMED, help="Share of the rate reached."),
    ] = COMPUTE_EFFICIENCY,
    pass_ms: Annotated[
        float,
        typer.Option(
            "--pass-ms",
            metavar="MS",
            rich_help_panel=ASSUMED,
            help="Launches and scheduling of a pass, of each model.",
        ),
    ] = 0.0,
    reserve: Annotated[
        float,
        typer.Option("--reserve", metavar="GB", rich_help_panel=ASSUMED, help="Memory kept free on each device."),
    ] = RESERVE,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            rich_help_panel=options.OUTPUT,
            show_default="none",
            help="Write the same as a page of charts with sliders, which needs no network.",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            "--plots",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUT,
            show_default="none",
            help="Write pictures there: speed-up by draft length and by load, and the memory (extra 'plots').",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say whether to speculate, with what and how far, before anything is bought or measured.

    With a target and a device: drafters ranked by predicted speed-up, what each takes of the memory, the reason, the
    assumptions with their sources, and settings for outpace, vLLM, llama.cpp, SGLang and TensorRT-LLM. With
    --acceptance and --cost alone: tokens a pass and speed-up by draft length.
    """
    from outpace.cli.plan_inputs import acceptances, concurrencies, device_named, shape_named

    if target is None:
        given = {
            "--draft": bool(drafts),
            "--device": device is not None,
            "--dtype": dtype != DTYPE,
            "--draft-dtype": draft_dtype is not None,
            "--count": count != 1,
            "--context": context != CONTEXT,
            "--source-tokens": source_tokens is not None,
            "--concurrency": concurrency != CONCURRENCY,
            "--tasks": tasks != TASKS,
            "--latency-target": latency_target is not None,
            "--memory-efficiency": memory_efficiency != MEMORY_EFFICIENCY,
            "--compute-efficiency": compute_efficiency != COMPUTE_EFFICIENCY,
            "--pass-ms": pass_ms != 0,
            "--reserve": reserve != RESERVE,
        }
        _lengths(acceptance, cost, slope, [name for name, there in given.items() if there], html, plots, as_json)
        return
    if device is None:
        raise UsageError("--target needs --device, for example --device h100 or memory=24,bandwidth=1000,rate=165")
    if slope:
        raise UsageError(
            "--slope is for --acceptance and --cost alone: with --target the device says what a row costs"
        )
    from outpace.theory import checks
    from outpace.theory.planner import plan as planned
    from outpace.theory.question import Question
    from outpace.theory.roofline import Efficiency, precision

    # here, where values have the option's unit and name
    checks.count("--count", count, 1, "devices")
    checks.not_negative("--pass-ms", pass_ms, "milliseconds")
    checks.not_negative("--reserve", reserve, "GB")
    if latency_target is not None:
        checks.positive("--latency-target", latency_target, "milliseconds")
    held, shape = precision(dtype), shape_named(target)
    if source_tokens is not None:
        checks.count("--source-tokens", source_tokens, 1, "tokens")
        if not shape.encoder_layers:
            raise UsageError(f"--source-tokens is for an encoder-decoder, which {shape.name} is not: leave it out")
    found = planned(
        Question(
            target=shape,
            device=device_named(device, held),
            precision=held,
            drafts=tuple(shape_named(name) for name in drafts or ()),
            draft_precision=None if draft_dtype is None else precision(draft_dtype),
            devices=count,
            context=context,
            concurrency=concurrencies(concurrency),
            tasks=tuple(task.strip() for task in tasks.split(",")),
            latency_target_seconds=None if latency_target is None else latency_target / 1e3,
            acceptance=acceptances(acceptance),
            cost=cost,
            efficiency=Efficiency(memory_efficiency, compute_efficiency, pass_ms / 1e3),
            source_tokens=SOURCE_TOKENS if source_tokens is None else source_tokens,
            reserve_bytes=reserve * 1e9,
        )
    )
    _show(found, target, html, plots, as_json)


def _show(found: Plan, target: str, html: str | None, plots: Path | None, as_json: bool) -> None:
    from outpace.cli.plan_html import plan_page, write_page
    from outpace.cli.plan_view import show_plan
    from outpace.cli.vllm_check import checked_by_vllm
    from outpace.theory.engine_settings import all_settings, vllm_config

    if html is not None:
        write_page(html, plan_page(found))
    if plots is not None:
        from outpace.cli.plan_plots import plan_pictures

        _note(plan_pictures(found, plots))
    chosen = _chosen(found, target)
    settings, checked = all_settings(chosen), checked_by_vllm(vllm_config(chosen))
    if as_json:
        engines = [asdict(one) | ({"checked": checked} if one.engine == "vLLM" else {}) for one in settings]
        console.print_json(found.record() | {"settings": engines})
    else:
        show_plan(found, settings, checked)


def _note(files: list[Path]) -> None:
    for file in files:
        console.note(f"picture written to {file}")


def _chosen(found: Plan, target: str) -> Chosen:
    from outpace.theory.engine_settings import Chosen

    best, devices = found.chosen, found.question.devices
    if best is None:
        return Chosen(target, "none", devices=devices)
    draft = best.candidate.name if best.candidate.kind == "draft" else None
    return Chosen(target, best.candidate.kind, draft, best.first.draft_length, devices)


def _lengths(
    acceptance: str | None,
    cost: float | None,
    slope: float,
    needless: list[str],
    html: str | None,
    plots: Path | None,
    as_json: bool,
) -> None:
    from outpace.cli.plan_html import lengths_page, write_page
    from outpace.cli.plan_inputs import number
    from outpace.cli.plan_view import show_lengths
    from outpace.theory.length_table import length_table

    if needless:
        raise UsageError(f"{needless[0]} needs --target MODEL")
    if acceptance is None or cost is None:
        raise UsageError("give --target MODEL and --device NAME, or --acceptance X and --cost C alone")
    found = length_table(number("--acceptance", acceptance), cost, slope)
    if html is not None:
        write_page(html, lengths_page(found))
    if plots is not None:
        from outpace.cli.plan_plots import length_pictures

        _note(length_pictures(found, plots))
    if as_json:
        console.print_json(found.record())
    else:
        show_lengths(found)
