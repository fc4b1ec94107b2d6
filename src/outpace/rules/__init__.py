"""The rules: pure functions (draft, laws, noise) -> the accepted path and the next token.

`coupled` keeps the seed's text whatever is drafted (the default). The other lossless ones accept more, and their text
depends on the drafts, though its law does not: `rejection` is the papers' rule, `block` the best one for a chain,
`traversal` the same for a tree. The rules of `lossy` change the law, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from outpace.rules.block import Block
from outpace.rules.coupled import Coupled
from outpace.rules.lossy import GreedyLenience, Lenience, Typical
from outpace.rules.quantities import acceptance_probability, excess, overlap, residual
from outpace.rules.rejection import Rejection
from outpace.rules.tables import TableLaw, coupled_verify, rejection_verify
from outpace.rules.traversal import Traversal
from outpace.types import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (Coupled(), Rejection(), Block(), Traversal(), Typical(), Lenience(), GreedyLenience())
    }
)
"""Every rule by its name; the first is the default."""

__all__ = [
    "RULES",
    "Block",
    "Coupled",
    "GreedyLenience",
    "Lenience",
    "Rejection",
    "TableLaw",
    "Traversal",
    "Typical",
    "acceptance_probability",
    "coupled_verify",
    "excess",
    "overlap",
    "rejection_verify",
    "residual",
]
