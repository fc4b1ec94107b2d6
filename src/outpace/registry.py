"""Names of drafters, rules and engines, and where each is found. Plugins add theirs by entry points:

[project.entry-points."outpace.drafters"]
mine = "my_package:make_drafter"            # a callable (target, draft) -> Drafter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from outpace.errors import OutpaceError, UsageError


@dataclass(frozen=True)
class Registry:
    """One kind of part by name; nothing is imported before it is asked for.

    kind: as it stands in messages. group: the entry points' group. own: name -> "module:attribute".
    """

    kind: str
    group: str
    own: Mapping[str, str]

    @cached_property
    def _plugins(self) -> Mapping[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def names(self) -> tuple[str, ...]:
        """Returns every known name: ours in their order, then the plugins'."""
        return (*self.own, *(name for name in sorted(self._plugins) if name not in self.own))

    def get(self, name: str) -> Any:
        """Returns what `name` stands for.

        Raises UsageError, listing the known names, when there is none, and for a plugin that cannot be loaded.
        """
        if name in self.own:
            module, attribute = self.own[name].split(":")
            return getattr(import_module(module), attribute)
        if name in self._plugins:
            try:
                return self._plugins[name].load()
            except (ImportError, AttributeError) as error:
                place = self._plugins[name].value
                raise UsageError(
                    f"{self.kind} {name!r} is a plugin, {place}, that cannot be loaded: {error}"
                ) from None
        close = get_close_matches(str(name).lower(), self.names(), n=2)
        hint = f": did you mean {' or '.join(close)}?" if close else ";"
        raise UsageError(f"unknown {self.kind} {name!r}{hint} known: {', '.join(self.names())}")


DRAFTERS = Registry(
    "drafter",
    "outpace.drafters",
    {
        "none": "outpace.drafters.none:make",
        "ngram": "outpace.drafters.ngram:make",
        "suffix": "outpace.drafters.suffix:make",
        "model": "outpace.drafters.model:make",
        "early_exit": "outpace.drafters.model:make_early_exit",
        "quantized": "outpace.drafters.model:make_quantized",
        "lookahead": "outpace.drafters.lookahead:make",
        "unigram": "outpace.drafters.bigram:make_unigram",
        "bigram": "outpace.drafters.bigram:make",
        "translate": "outpace.drafters.translate:make",
        "mixture": "outpace.drafters.mixture:make",
        "eagle": "outpace.drafters.eagle:make",
        "blend": "outpace.drafters.blend:make",
        "parallel": "outpace.drafters.parallel:make",
        "medusa": "outpace.drafters.medusa:make",
        "blockwise": "outpace.drafters.medusa:make_blockwise",
        "published": "outpace.drafters.published:make",
    },
)
"""Callables (target, draft) -> Drafter, where `draft` is a loaded smaller Target or None."""

RULES = Registry(
    "rule",
    "outpace.rules",
    {
        "coupled": "outpace.rules.coupled:Coupled",
        "rejection": "outpace.rules.rejection:Rejection",
        "block": "outpace.rules.block:Block",
        "traversal": "outpace.rules.traversal:Traversal",
        "typical": "outpace.rules.lossy:Typical",
        "lenience": "outpace.rules.lossy:Lenience",
        "lenience-greedy": "outpace.rules.lossy:GreedyLenience",
    },
)
"""Callables () -> Rule."""

ENGINES = Registry(
    "engine",
    "outpace.engines",
    {"native": "outpace.engines:load_native", "torch": "outpace.engines:load_torch"},
)
"""Callables (path, threads, context, *, clip, **settings) -> (Target, Text).

`clip` cuts a context to what the model can do. Settings (device, dtype, trust_remote_code) come when given.
"""


def usable_drafters(target: Any, draft: Any = None, wanted: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Returns the drafters that can draft for the target, "none" excepted, and why each other one cannot.

    draft: a draft model, or None. wanted: names to keep; all when empty. Raises UsageError for an unknown one.
    """
    usable: list[str] = []
    absent: dict[str, str] = {}
    for name in wanted or DRAFTERS.names():
        if name == "none":
            continue
        make = DRAFTERS.get(name)
        try:
            make(target, draft)
        except (OutpaceError, ImportError) as error:
            absent[name] = str(error)
        else:
            usable.append(name)
    return usable, absent
