"""`outpace bench run` behind the command line: from a model and prompt files to a Run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from outpace.api import Model
from outpace.bench import engines
from outpace.bench.contender import PLAIN, Contender, Ours
from outpace.bench.provenance import provenance
from outpace.bench.run import Entrant, Progress, Run, measure
from outpace.bench.tasks import Question
from outpace.errors import UsageError


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run is asked for. drafters: settings beside plain decoding; rule and draft_length hold for each."""

    drafters: tuple[str, ...] = ("auto",)
    draft_length: int | None = None
    rule: str = "coupled"
    peers: tuple[str, ...] = ()
    max_tokens: int = 128
    repeats: int = 3
    seed: int = 1

    def check(self) -> None:
        """Raises UsageError for counts out of range and unknown peers."""
        for name, value, least in (("max_tokens", self.max_tokens, 2), ("repeats", self.repeats, 1)):
            if value < least:
                raise UsageError(f"{name} must be at least {least}, got {value}")
        engines.check_names(self.peers)


def bench_run(
    model: Model,
    path: Path,
    draft: Path | None,
    questions: Sequence[Question],
    conditions: Conditions,
    *,
    keep: Callable[[Run], None] = lambda run: None,
    progress: Progress = lambda fraction, what: None,
) -> Run:
    """Returns what was measured; `keep` sees it after every prompt. path, draft: the files, for the peers.

    Raises UsageError before anything is measured; afterwards a run always comes back, and says why it ended.
    """
    conditions.check()
    with_schema = next((question.name for question in questions if question.schema), None)
    if with_schema is not None:
        raise UsageError(f"{with_schema} asks for JSON by a schema: outpace bench drafters takes it")
    ours = _ours(model, conditions)
    ids = {q.name: model.text.render_chat([{"role": "user", "content": q.text}]) for q in questions}
    room = max(map(len, ids.values())) + conditions.max_tokens + 16
    if room > model.target.max_length:
        raise UsageError(
            f"the longest prompt and its answer need {room} tokens, the context holds {model.target.max_length}: "
            "set a larger --context or fewer --max-tokens"
        )
    with ExitStack() as resources:
        given = engines.Field(
            path, draft, model.target.threads, room, model.text.eos_ids | model.target.eos_ids, resources
        )
        progress(0.0, "loading peers")
        peers, missing = engines.open_peers(conditions.peers, given)
        contenders: list[Contender] = [*ours, *peers]
        settings: dict[str, Any] = asdict(conditions) | {
            "model": model.target.name,
            "draft": None if model.draft is None else model.draft.name,
            "threads": model.target.threads,
        }
        entrants = {c.name: Entrant(c.name, c.version, c.load_seconds) for c in contenders}
        run = Run(provenance(), settings, tuple(questions), entrants, missing=missing)
        measure(
            run,
            contenders,
            ids,
            max_tokens=conditions.max_tokens,
            repeats=conditions.repeats,
            seed=conditions.seed,
            keep=keep,
            progress=progress,
        )
        for contender in contenders:
            contender.close()
    return run


def _ours(model: Model, conditions: Conditions) -> list[Ours]:
    """Returns plain decoding and one contender for each drafter, checked before anything runs."""
    version = _version()
    found = [Ours(model, PLAIN, {"drafter": "none"}, version=version)]
    for drafter in dict.fromkeys(conditions.drafters):
        options: dict[str, Any] = {"drafter": drafter, "rule": conditions.rule}
        name = f"outpace {drafter}"
        if conditions.draft_length is not None:
            options["draft_length"] = conditions.draft_length
            name += f" {conditions.draft_length}"
        model.check(**options)
        found.append(Ours(model, name, options, version=version))
    return found


def _version() -> str:
    try:
        return metadata.version("outpace")
    except metadata.PackageNotFoundError:
        return "from source"
