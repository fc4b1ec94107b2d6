"""`outpace serve`: an OpenAI-compatible server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from outpace.cli import console, options
from outpace.cli.loading import load_model
from outpace.errors import MissingExtra, UsageError

SERVER = "Server"

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
        help="Tokens that open requests may hold together.",
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


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve")(serve)


def serve(
    model: options.Model = options.EMBEDDED,
    draft: options.DraftModel = None,
    context: options.ContextLength = None,
    threads: options.Threads = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = None,
    slots: Slots = 16,
    queue: Queue = 128,
    cache_tokens: CacheTokens = None,
    request_seconds: RequestSeconds = 600.0,
    grace_seconds: GraceSeconds = 30.0,
    body_megabytes: BodyMegabytes = 8,
    api_key: ApiKey = None,
) -> None:
    """Serve a model to any OpenAI client, with speculation and the same text.

    POST /v1/chat/completions and /v1/completions, GET /v1/models, /health, /ready, /metrics, /openapi.json.
    """
    try:
        import uvicorn

        from outpace.serve.app import make_app
        from outpace.serve.scheduler import Limits
        from outpace.serve.service import Service
        from outpace.serve.settings import Settings
    except ImportError as error:
        raise MissingExtra(f"outpace serve ({error.name} is not installed)", "serve") from None
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
    loaded = load_model(model, draft=draft, threads=threads, context=context)
    service = Service.of(loaded, settings)
    config = uvicorn.Config(
        make_app(service),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        server_header=False,
    )
    server = uvicorn.Server(config)
    try:
        socket = config.bind_socket()
    except SystemExit:
        raise UsageError(f"cannot listen on {host}:{port}: is the port in use?") from None
    socket.listen(2048)  # whoever reads the line below may connect at once
    address, bound = socket.getsockname()[:2]
    console.note(f"{service.name} at http://{address}:{bound}/v1 (pid {os.getpid()}); Ctrl-C ends")
    server.run(sockets=[socket])
