"""`outpace serve`: an OpenAI-compatible server."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outpace.cli import console, options
from outpace.cli.loading import EngineChoice, load_model
from outpace.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from outpace.serve.settings import Settings

SERVER, VLLM = "Server", "vLLM"

SLOTS, QUEUE, REQUEST_SECONDS = 16, 128, 600.0

Host = Annotated[
    str, typer.Option("--host", rich_help_panel=SERVER, help="Address to listen on; 0.0.0.0 lets other machines in.")
]
Port = Annotated[int, typer.Option("--port", rich_help_panel=SERVER, help="Port to listen on; 0 takes a free one.")]
Name = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        rich_help_panel=SERVER,
        show_default="the model's own",
        help="What requests call the model; repeat it for further names.",
    ),
]
Slots = Annotated[
    int, typer.Option("--slots", metavar="N", rich_help_panel=SERVER, help="Requests that run at the same time.")
]
Queue = Annotated[
    int,
    typer.Option(
        "--queue", metavar="N", rich_help_panel=SERVER, help="Requests that may wait; more are answered with 429."
    ),
]
CacheTokens = Annotated[
    int | None,
    typer.Option(
        "--cache-tokens",
        metavar="N",
        rich_help_panel=SERVER,
        show_default="half of the free memory",
        help="Tokens that open requests may hold together; what they leave keeps the prompts of ended ones.",
    ),
]
RequestSeconds = Annotated[
    float, typer.Option("--request-seconds", rich_help_panel=SERVER, help="Longest time for one request.")
]
GraceSeconds = Annotated[
    float, typer.Option("--grace-seconds", rich_help_panel=SERVER, help="Time for open requests after SIGTERM.")
]
BodyMegabytes = Annotated[int, typer.Option("--body-megabytes", rich_help_panel=SERVER, help="Largest request body.")]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        envvar="OUTPACE_API_KEY",
        rich_help_panel=SERVER,
        show_default="none",
        help="Key that every request must carry.",
    ),
]


Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=options.ENGINE,
        help="auto (native), native, torch, or vllm: started and supervised, its API passed on with our counters.",
    ),
]
Drafter = Annotated[
    str,
    typer.Option(
        "--drafter",
        metavar="NAME",
        rich_help_panel=VLLM,
        show_default="suffix, or the --draft",
        help="How vLLM drafts: suffix, ngram, eagle (with --head) or none. On our own engines requests say it.",
    ),
]
DraftLength = Annotated[
    int | None,
    typer.Option(
        "--draft-length",
        metavar="K",
        rich_help_panel=VLLM,
        show_default="4",
        help="Tokens that vLLM drafts a round; 0 is plain decoding.",
    ),
]
PlanFile = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE.json",
        rich_help_panel=VLLM,
        show_default="none",
        help="What `outpace plan --json` wrote: drafter, length and devices are its choice.",
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        "--head", metavar="MODEL", rich_help_panel=VLLM, show_default="none", help="The drafting head of eagle."
    ),
]
Devices = Annotated[
    int,
    typer.Option("--devices", metavar="N", rich_help_panel=VLLM, help="Devices of a machine that share the model."),
]
Nodes = Annotated[
    int,
    typer.Option(
        "--nodes",
        metavar="N",
        rich_help_panel=VLLM,
        help="Machines that share the model; Ray must run on them, as vLLM wants it.",
    ),
]
Program = Annotated[
    str, typer.Option("--vllm", metavar="PATH", rich_help_panel=VLLM, help="The command that starts vLLM.")
]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--vllm-option",
        metavar="WORD",
        rich_help_panel=VLLM,
        show_default="none",
        help="A further word for vLLM, such as --vllm-option=--max-model-len=8192; may be repeated.",
    ),
]


NoLog = Annotated[
    bool,
    typer.Option(
        "--no-log",
        rich_help_panel=SERVER,
        show_default="off",
        help="Write no line of JSON to stderr for each request that ends; such a line never has its text.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve")(serve)


def serve(
    model: options.Model = options.EMBEDDED,
    draft: options.DraftModel = None,
    context: options.ContextLength = None,
    threads: options.Threads = None,
    engine: Engine = "auto",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = None,
    slots: Slots = SLOTS,
    queue: Queue = QUEUE,
    cache_tokens: CacheTokens = None,
    request_seconds: RequestSeconds = REQUEST_SECONDS,
    grace_seconds: GraceSeconds = 30.0,
    body_megabytes: BodyMegabytes = 8,
    api_key: ApiKey = None,
    no_log: NoLog = False,
    drafter: Drafter = "auto",
    draft_length: DraftLength = None,
    plan: PlanFile = None,
    head: Head = None,
    devices: Devices = 1,
    nodes: Nodes = 1,
    vllm: Program = "vllm",
    vllm_option: Extra = None,
) -> None:
    """Serve a model to any OpenAI client, with speculation and the same text.

    POST /v1/chat/completions and /v1/completions, GET /v1/models, /health, /ready, /metrics, /openapi.json. With
    --engine vllm what vLLM serves, its counters under our names where they mean the same.
    """
    try:
        from outpace.serve.heap import share_one_heap
        from outpace.serve.scheduler import Limits
        from outpace.serve.settings import Settings
    except ImportError as error:
        raise MissingExtra(f"outpace serve ({error.name} is not installed)", "serve") from None
    from outpace.cli.serve_vllm import Wanted, serve_vllm

    for option, value in (("--cache-tokens", cache_tokens), ("--body-megabytes", body_megabytes)):
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, got {value}")
    settings = Settings(
        host=host,
        port=port,
        names=tuple(name or (() if Path(model).exists() else (model,))),
        api_key=api_key,
        body_bytes=body_megabytes << 20,
        grace_seconds=grace_seconds,
        limits=Limits(slots=slots, queue=queue, tokens=cache_tokens or 0, seconds=request_seconds),
    )
    settings.check()
    if not no_log:
        from outpace.serve import log

        log.start()
    words = tuple(vllm_option or ())
    wanted = Wanted(model, draft, drafter, draft_length, plan, head, devices, nodes, vllm, words)
    if engine == "vllm":
        own = {
            "--context": context is not None,
            "--threads": threads is not None,
            "--slots": slots != SLOTS,
            "--queue": queue != QUEUE,
            "--cache-tokens": cache_tokens is not None,
            "--request-seconds": request_seconds != REQUEST_SECONDS,
        }
        if given := [option for option, there in own.items() if there]:
            raise UsageError(f"{given[0]} is for our own engines, got --engine vllm: say it by --vllm-option")
        serve_vllm(wanted, settings)
        return
    if theirs := wanted.differences(Wanted(model, draft)):
        raise UsageError(f"{theirs[0]} is for --engine vllm, got --engine {engine}: leave it out")
    from outpace.serve.app import make_app
    from outpace.serve.service import Service

    share_one_heap()
    run_on = EngineChoice(engine)
    loaded = load_model(model, draft=draft, threads=threads, context=context, engine=run_on)
    service = Service.of(loaded, settings)
    listen(make_app(service), settings, service.name)


def listen(
    app: FastAPI, settings: Settings, name: str, stop: Callable[[Callable[[], None]], None] | None = None
) -> None:
    """Serves until a signal ends it. stop: is given what ends it, too. Raises UsageError where it cannot listen."""
    from outpace.serve.draining import DrainingServer

    server = DrainingServer(app, settings)
    if stop is not None:
        stop(lambda: setattr(server, "should_exit", True))
    said = logging.getLogger("uvicorn.error")
    said.disabled = True  # it would say why a line earlier, and the error below says it
    try:
        socket = server.config.bind_socket()
    except SystemExit as end:
        reason = getattr(end.__context__, "strerror", None) or "it cannot be bound"
        raise UsageError(f"cannot listen on {settings.host}:{settings.port}: {reason}") from None
    finally:
        said.disabled = False
    socket.listen(2048)  # whoever reads the line below may connect at once
    address, bound = socket.getsockname()[:2]
    console.note(f"{name} at http://{address}:{bound}/v1 (pid {os.getpid()}); Ctrl-C ends")
    server.run(sockets=[socket])
