"""What one generation asks for, checked once, before the loop."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from outpace.control import CostProfile, FixedController, MeasuredController
from outpace.errors import OutpaceError, UsageError
from outpace.registry import DRAFTERS, RULES
from outpace.sampling import SamplingParams
from outpace.types import Controller, Drafter, Rule, Target

T = TypeVar("T")

AUTO = "auto"

FREE_PATIENCE, MODEL_PATIENCE = 0.75, 16.0
"""Plain passes that drafts may lose before they have shown their worth, where none and where a model runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One generation's parameters, as `Model.generate` documents them."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    drafter: str = AUTO
    draft_length: int | None = None
    rule: str = "coupled"


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that options name, made and found to fit together. reason: why this drafter."""

    params: SamplingParams
    seed: int
    rule: Rule
    drafter: Drafter
    controller: Controller
    reason: str
    reproducible: bool


class _Problems:
    """Collects what is wrong, so that the caller hears of all of it at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, make: Callable[[], T]) -> T | None:
        """Returns what `make` returns, or None after noting its error."""
        try:
            return make()
        except OutpaceError as error:
            self.found.append(str(error))
            return None


def plan(options: Options, target: Target, draft: Target | None, profile: CostProfile) -> Plan:
    """Returns the plan. Raises UsageError with every problem and its remedy, in one message."""
    problems = _Problems()
    if options.max_tokens < 1:
        problems.found.append(f"max_tokens must be at least 1, got {options.max_tokens}")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    params = problems.attempt(
        lambda: SamplingParams(options.temperature, options.top_k, options.top_p, options.min_p, seed)
    )
    rule: Rule | None = problems.attempt(lambda: RULES.get(options.rule)())
    name, reason = _choice(options, draft)
    drafter: Drafter | None = problems.attempt(lambda: DRAFTERS.get(name)(target, draft))
    if drafter and rule:
        problems.found += _misfits(target, drafter, rule)
    controller = problems.attempt(lambda: _controller(options, name, drafter, profile))
    if problems.found or params is None or rule is None or drafter is None or controller is None:
        raise UsageError("; ".join(problems.found))
    fixed = options.draft_length is not None or name == "none"
    reproducible = rule.shares_noise or fixed or (params.greedy and rule.lossless)
    return Plan(params, seed, rule, drafter, controller, reason, reproducible)


def _choice(options: Options, draft: Target | None) -> tuple[str, str]:
    """Returns the drafter's name and why it is that one."""
    if options.drafter != AUTO:
        return options.drafter, "as asked"
    if draft is not None:
        return "model", f"drafts by {draft.name}"
    return "ngram", "automatic, no draft model given"


def _controller(options: Options, name: str, drafter: Drafter | None, profile: CostProfile) -> Controller:
    if options.draft_length is not None:
        return FixedController(options.draft_length)
    if name == "none" or drafter is None:
        return FixedController(0)
    patience = MODEL_PATIENCE if drafter.weight_bytes else FREE_PATIENCE
    return MeasuredController(profile, name, self_limiting=drafter.self_limiting, patience=patience)


def _misfits(target: Target, drafter: Drafter, rule: Rule) -> list[str]:
    """Returns what the three cannot do together, each with its remedy."""
    found = []
    if drafter.drafts_trees and not rule.verifies_trees:
        found.append(f"drafter {drafter.name!r} drafts trees, which rule {rule.name!r} cannot verify: use 'coupled'")
    if drafter.drafts_trees and not target.scores_trees:
        found.append(
            f"drafter {drafter.name!r} drafts trees, which engine {target.engine!r} cannot score: use 'ngram'"
        )
    if drafter.taps and max(drafter.taps) > target.hidden_layers:
        found.append(
            f"drafter {drafter.name!r} needs the hidden states of layer {max(drafter.taps)}, "
            f"the target offers {target.hidden_layers}: use 'ngram'"
        )
    return found
