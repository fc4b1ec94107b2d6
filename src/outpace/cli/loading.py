"""From the options that name a model to the model."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.cli import console

if TYPE_CHECKING:
    import outpace.api


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine runs a model, and how, as `outpace.load` takes it."""

    engine: str = "auto"
    draft_engine: str = "auto"
    translate: str | None = None
    device: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    pack: str | None = None
    exit_layer: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for, less what is the default anyway."""
        # 0 is asked for, and equals False
        return {n: value for n, value in asdict(self).items() if value not in ("auto", None) and value is not False}


_AUTOMATIC = EngineChoice()


def load_model(
    name: str,
    *,
    draft: str | None,
    threads: int | None,
    context: int | None,
    engine: EngineChoice = _AUTOMATIC,
    store: Path | None = None,
) -> outpace.api.Model:
    """Returns the loaded model, fetched first where it is not here; on a terminal, one line says what goes on.

    Where an engine had something to choose, one line says what.
    """
    from outpace.api import load

    path, draft_path = _here(name), None if draft is None else _here(draft)
    watched = sys.stderr.isatty()
    if watched:
        sys.stderr.write(f"loading {name} ...")
        sys.stderr.flush()
    try:
        asked = engine.given | ({} if store is None else {"store": store})
        loaded = load(path, draft=draft_path, threads=threads, context=context, **asked)
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
    for one in filter(None, (loaded.target, loaded.draft)):
        if (chosen := getattr(one, "runs_on", None)) is not None:
            console.note(f"{one.name}: engine {one.engine}, {chosen}")
    return loaded


def _here(name: str) -> Path:
    from outpace import models
    from outpace.cli.pulling import pulling

    with pulling(name) as progress:
        return models.resolve(name, progress=progress)
