"""Other engines as contenders: each used where it is installed, else named as missing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from outpace.bench.contender import Contender
from outpace.errors import OutpaceError, UsageError

DRAFT_LENGTH = 5
"""Tokens that the peers' prompt lookup drafts, and the draft model's."""

LOOKUP = 3
"""Tokens of the longest match that the peers' prompt lookup looks for."""

SETTLE_SECONDS = 0.2
"""How long a peer's threads may spin on after an answer, at the next one's expense."""


@dataclass
class Field:
    """What every peer is given: the same file and threads. positions: room for prompt and answer.

    draft: a draft model's file, for those that take one. ends: tokens that end a text.
    """

    model: Path
    draft: Path | None
    threads: int
    positions: int
    ends: frozenset[int]
    resources: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def folder(self) -> Path:
        """The same weights as a folder of transformers in bfloat16, made when first asked for."""
        if self.model.is_dir():
            return self.model
        from outpace.models.exporting import export

        work = Path(self.resources.enter_context(tempfile.TemporaryDirectory(prefix="outpace-bench-")))
        return export(self.model, work / "model")


_PEERS: Mapping[str, tuple[str, str]] = {
    "llama.cpp": ("llama_cpp", "outpace.bench.engines.llama"),
    "openvino": ("openvino_genai", "outpace.bench.engines.openvino"),
    "transformers": ("torch", "outpace.bench.engines.transformers"),
    "vllm": ("vllm", "outpace.bench.engines.vllm"),
}
"""Name -> (package that must be installed, module whose `contenders(field)` yields its settings)."""


def check_names(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is no peer's."""
    for name in names:
        if name not in _PEERS:
            raise UsageError(f"unknown peer {name!r:.80}; known: {', '.join(_PEERS)}")


def open_peers(names: Sequence[str], given: Field) -> tuple[list[Contender], dict[str, str]]:
    """Returns the contenders of the peers that are installed and take the model, and why the others do not.

    Of a peer of which a setting cannot start, those before it are returned, and `the rest of` it is missing.
    """
    check_names(names)
    found: list[Contender] = []
    missing: dict[str, str] = {}
    for name in dict.fromkeys(names):
        package, module = _PEERS[name]
        if find_spec(package) is None:
            missing[name] = f"not installed: pip install {package.replace('_', '-')}"
            continue
        before = len(found)
        try:
            settings: Callable[[Field], Iterator[Contender]] = import_module(module).contenders
            found.extend(settings(given))  # those before an error stay
        except Exception as error:  # a peer that cannot start must not cost the others their figures
            why = str(error) if isinstance(error, OutpaceError) else f"{type(error).__name__}: {error}"
            missing[f"the rest of {name}" if len(found) > before else name] = f"{' '.join(why.split()):.240}"
    return found, missing
