"""`outpace serve --engine vllm`: vLLM started, supervised and stood before, with the settings of a plan."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from outpace.cli import arguments, console
from outpace.errors import UsageError
from outpace.theory.engine_settings import PLACEHOLDER_HEAD, Chosen, vllm_words

if TYPE_CHECKING:
    from outpace.serve.settings import Settings

MAX_PLAN = 4 << 20

DEFAULT_LENGTH = 4
"""Drafted tokens where neither a plan nor --draft-length says how many."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says of vLLM. plan: a file that `outpace plan --json` wrote. head: a drafting head.

    devices: that share the model on a machine; nodes: machines, through vLLM's own Ray support. extra: more words.
    """

    model: str
    draft: str | None = None
    drafter: str = "auto"
    draft_length: int | None = None
    plan: str | None = None
    head: str | None = None
    devices: int = 1
    nodes: int = 1
    program: str = "vllm"
    extra: tuple[str, ...] = ()

    def differences(self, plain: Wanted) -> list[str]:
        """Returns the options by which this differs from `plain`."""
        options = {"program": "--vllm", "extra": "--vllm-option"}
        names = [one.name for one in fields(self) if getattr(self, one.name) != getattr(plain, one.name)]
        return [options.get(name, "--" + name.replace("_", "-")) for name in names]

    def words(self) -> list[str]:
        """Returns vLLM's command line, less where it listens. Raises UsageError for what contradicts itself."""
        if self.devices < 1 or self.nodes < 1:
            raise UsageError(f"--devices and --nodes must be at least 1, got {self.devices} and {self.nodes}")
        words = self._planned() if self.plan is not None else vllm_words(self._chosen())
        found = shutil.which(self.program)
        if found is None:
            raise UsageError(
                f"there is no program {self.program!r}: install vLLM (pip install vllm), or set --vllm PATH"
            )
        if self.head is not None:
            if not any(f'"{PLACEHOLDER_HEAD}"' in word for word in words):
                raise UsageError("--head is for the drafter 'eagle', and another one drafts: leave it out")
            words = [word.replace(f'"{PLACEHOLDER_HEAD}"', json.dumps(self.head)) for word in words]
        if any(f'"{PLACEHOLDER_HEAD}"' in word for word in words):
            raise UsageError("a drafting head is planned, and a plan knows no file of one: --head MODEL names it")
        if self.nodes > 1:
            words += ["--pipeline-parallel-size", str(self.nodes), "--distributed-executor-backend", "ray"]
        return [found, *words[1:], *self.extra]

    def _planned(self) -> list[str]:
        """Returns the words of a plan's settings for vLLM; the model is that of the command line."""
        if self.draft is not None or self.drafter != "auto" or self.draft_length is not None or self.devices != 1:
            raise UsageError("--plan says how to draft and on how many devices: leave the other options out")
        content = arguments.file_text("--plan", str(self.plan), MAX_PLAN)
        try:
            record = json.loads(content)
            [text] = [one["text"] for one in record["settings"] if one["engine"] == "vLLM"]
            words = shlex.split(text)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"--plan {self.plan} was not written by outpace plan --json") from None
        if words[:2] != ["vllm", "serve"] or len(words) < 3:
            raise UsageError(f"--plan {self.plan} has no command of vLLM: {text!r:.80}")
        words[2] = self.model
        return words

    def _chosen(self) -> Chosen:
        kinds = {"auto": "suffix", "none": "none", "ngram": "ngram", "suffix": "suffix", "eagle": "eagle"}
        if self.draft is not None and self.drafter not in ("auto", "model"):
            raise UsageError(f"--draft MODEL is for the drafter 'model', got --drafter {self.drafter}")
        if self.draft is None and self.drafter not in kinds:
            raise UsageError(f"vLLM drafts by {', '.join(kinds)} or --draft MODEL, got --drafter {self.drafter}")
        kind = "draft" if self.draft is not None else kinds[self.drafter]
        length = DEFAULT_LENGTH if self.draft_length is None else self.draft_length
        if length < 0:
            raise UsageError(f"--draft-length must be at least 0, got {length}")
        if length == 0:
            kind = "none"
        return Chosen(self.model, kind, self.draft, length, self.devices)


def free_port() -> int:
    """Returns a loopback port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def command(wanted: Wanted, port: int, names: tuple[str, ...]) -> list[str]:
    """Returns the whole command: it listens on loopback, where only the proxy finds it."""
    named = ["--served-model-name", *names] if names else []
    return [*wanted.words(), *named, "--host", "127.0.0.1", "--port", str(port)]


def serve_vllm(wanted: Wanted, settings: Settings) -> None:
    """Serves until a signal ends it. Raises UsageError, and EngineFailed when vLLM does not start."""
    from outpace.cli.serve import listen
    from outpace.serve.proxy import make_proxy
    from outpace.serve.supervisor import Supervisor

    port = free_port()
    words = command(wanted, port, settings.names)
    console.note(f"starts {shlex.join(words)}")
    supervisor = Supervisor(words, f"http://127.0.0.1:{port}")

    def on_give_up(end: Callable[[], None]) -> None:
        supervisor.on_give_up = end

    listen(make_proxy(supervisor, settings), settings, f"{wanted.model} by vLLM", on_give_up)
    if supervisor.fault is not None:
        raise supervisor.fault
