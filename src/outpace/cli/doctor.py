"""`outpace doctor`: what this machine is, and what outpace makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from outpace.cli import console, options
from outpace.cli.loading import load_model
from outpace.errors import UsageError, VocabularyMismatch

NOT_BUILT = "not built: install a C++20 compiler, then run pip install --force-reinstall --no-deps outpace"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(doctor)


def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            rich_help_panel=options.MODEL,
            show_default="none: the machine alone",
            help="Also say whether drafts pay for this model here, and if not, why.",
        ),
    ] = None,
    draft: options.DraftModel = None,
    threads: options.Threads = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure",
            rich_help_panel=options.ENGINE,
            show_default="measure",
            help="Measure memory bandwidth and integer rate, which takes about a second.",
        ),
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Show the processor, the kernels chosen, what the machine allows, versions, and the models present.

    With a model: what stands between it, with this draft or n-grams, and a speed-up, each cause with its figure.
    """
    if draft is not None and model is None:
        raise UsageError("--draft needs --model MODEL, the target that it drafts for")
    record = examine(threads, measure)
    if model is not None:
        record["drafts"] = _drafts(model, draft, threads)
    if as_json:
        console.print_json(record)
    else:
        _show(record)


def _drafts(model: str, draft: str | None, threads: int | None) -> list[dict[str, Any]]:
    """Returns the findings about a pair; a draft of another family is one of them."""
    from outpace.audit.prompts import PROMPTS
    from outpace.bench.diagnosis import diagnose

    try:
        loaded = load_model(model, draft=draft, threads=threads, context=None)
    except VocabularyMismatch as error:
        return [{"about": "family", "good": False, "figure": str(error)}]
    with loaded:
        return [asdict(finding) for finding in diagnose(loaded, PROMPTS[:4])]


def examine(threads: int | None, measure: bool) -> dict[str, Any]:
    """Returns everything that the command shows."""
    import os

    from outpace import models
    from outpace.bench import machine
    from outpace.native.machine import checked_threads

    here, engine = machine.describe(), machine.engine()
    threads = here.threads if threads is None else checked_threads(threads)
    ceilings = machine.NativeCeilings(threads) if engine is not None and measure else None
    return {
        "processor": here.processor,
        "architecture": here.architecture,
        "features": None if engine is None else list(engine.features),
        "native_engine": engine is not None,
        "kernels": None if engine is None else list(engine.kernels),
        "kernel": None if engine is None else engine.chosen,
        "kernel_forced": os.environ.get("OUTPACE_KERNEL") or None,
        "bandwidth_gb_per_s": None if ceilings is None else ceilings.bandwidth() / 1e9,
        "integer_gmac_per_s": None if ceilings is None else ceilings.integer_rate() / 1e9,
        "threads": threads,
        "logical_cores": here.logical_cores,
        "physical_cores": here.physical_cores,
        "numa_nodes": here.numa_nodes,
        "memory_bytes": here.memory_bytes,
        "available_bytes": here.available_bytes,
        "versions": machine.versions(),
        "cache": str(models.cache_folder()),
        "models": {model.name: str(model.path) for model in models.list_models() if model.path},
    }


def _show(record: dict[str, Any]) -> None:
    out = console.stdout()
    for name, value in _rows(record):
        out.print(f"{name:13} {value}", soft_wrap=True)


def _rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the lines of the table."""
    yield "processor", f"{record['processor']} ({record['architecture']})"
    cores = [f"{record['logical_cores']} logical"]
    if record["physical_cores"] is not None:
        cores.append(f"{record['physical_cores']} physical")
    yield "cores", ", ".join(cores)
    yield "NUMA nodes", _or_unknown(record["numa_nodes"])
    yield "threads", f"{record['threads']} (--threads)"
    memory = _gigabytes(record["memory_bytes"])
    yield "memory", f"{memory}, {_gigabytes(record['available_bytes'])} available"
    if record["native_engine"]:
        yield "features", " ".join(record["features"]) or "none that the kernels use"
        why = (
            "forced by OUTPACE_KERNEL" if record["kernel_forced"] else "the best here; OUTPACE_KERNEL=NAME forces one"
        )
        yield "kernels", f"{record['kernel']} ({why}), of {', '.join(record['kernels'])}"
    else:
        yield "native engine", NOT_BUILT
    if record["bandwidth_gb_per_s"] is not None:
        yield "bandwidth", f"{record['bandwidth_gb_per_s']:.1f} GB/s read"
        yield "integer rate", f"{record['integer_gmac_per_s']:.0f} billion 8-bit multiply-adds/s"
    yield "cache", record["cache"]
    yield "models", ", ".join(record["models"]) or "none yet: outpace models pull smollm2-135m"
    for finding in record.get("drafts", ()):
        yield finding["about"], f"{'good' if finding['good'] else 'BAD '} {finding['figure']}"
    yield (
        "versions",
        ", ".join(f"{name} {version or 'not installed'}" for name, version in record["versions"].items()),
    )


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _gigabytes(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 1e9:.1f} GB"
