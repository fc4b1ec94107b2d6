"""The rules: pure functions (draft, laws, noise) -> the accepted path and the next token.

`coupled` keeps the seed's text whatever is drafted (the default); `rejection` is the papers' rule: it accepts more,
and its text depends on the drafts, though its law does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from outpace.rules.coupled import Coupled
from outpace.rules.quantities import acceptance_probability, excess, overlap, residual
from outpace.rules.rejection import Rejection
from outpace.rules.tables import TableLaw, coupled_verify, rejection_verify
from outpace.types import Rule

RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in (Coupled(), Rejection())})
"""Every rule by its name; the first is the default."""

__all__ = [
    "RULES",
    "Coupled",
    "Rejection",
    "TableLaw",
    "acceptance_probability",
    "coupled_verify",
    "excess",
    "overlap",
    "rejection_verify",
    "residual",
]
