"""What one generation asks for, checked once, before the loop."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from outpace.constraint import CompiledGrammar
from outpace.control import LONGEST, FixedController, MeasuredController
from outpace.costs import CostProfile
from outpace.errors import MissingExtra, OutpaceError, UsageError
from outpace.grammar import Grammar, JsonSchema, Regex
from outpace.noise import check_choice
from outpace.processors import Adjustments, check_ids
from outpace.registry import DRAFTERS, RULES
from outpace.sampling import SamplingParams
from outpace.suffix_store import Stores, SuffixStore
from outpace.types import Controller, Drafter, Rule, Target

T = TypeVar("T")

AUTO = "auto"

WHOLE = ("max_tokens", "min_tokens", "n", "choice", "top_k", "seed", "draft_length", "logprobs")
REAL = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
OPTIONAL = frozenset(("seed", "draft_length", "logprobs"))
"""Options that are numbers, and those of them that may be None."""

FLAGS = ("ignore_eos",)
NAMES = ("drafter", "rule")

MAX_N = 128
"""Choices of one call."""

FREE_PATIENCE, MODEL_PATIENCE = 1.0, 6.0
"""Plain passes that drafts may lose before they have shown their worth, where they cost little and where a model
runs."""

SMALL = 1 / 8
"""A drafter that reads less than this share of its target's weights is no model in that sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One generation's parameters, as `Model.generate` documents them."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned: tuple[int, ...] = ()
    allowed: tuple[int, ...] | None = None
    seed: int | None = None
    choice: int = 0
    n: int = 1
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    grammar: Grammar | None = None
    drafter: str = AUTO
    draft_length: int | None = None
    rule: str = "coupled"
    prediction: str | None = None

    def endings(self, eos_ids: frozenset[int]) -> frozenset[int]:
        """Returns the tokens that end the text of a model with these EOS ids."""
        return frozenset(self.stop_ids) | (frozenset() if self.ignore_eos else eos_ids)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that options name, made and found to fit together.

    endings: tokens that end the text. reason: why this drafter. costs: what passes are known to cost. forced: tokens
    that a grammar forces and that are drafted at once, 0 in plain decoding.
    """

    params: SamplingParams
    adjustments: Adjustments
    endings: frozenset[int]
    seed: int
    choice: int
    rule: Rule
    drafter: Drafter
    controller: Controller
    reason: str
    reproducible: bool
    costs: CostProfile
    grammar: CompiledGrammar | None = None
    forced: int = 0


@runtime_checkable
class Remembering(Protocol):
    """A drafter that can draft from texts of other requests."""

    def remembering(self, stores: Sequence[SuffixStore]) -> Drafter:
        """Returns the drafter with these stores, the least specific first."""
        ...


@runtime_checkable
class Copying(Protocol):
    """A drafter that copies from `Prompt.expected`."""

    copies_expected: bool


class _Problems:
    """Collects what is wrong, so that the caller hears of all of it at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, make: Callable[[], T]) -> T | None:
        """Returns what `make` returns, or None after noting its error. A missing extra is all there is to say."""
        try:
            return make()
        except MissingExtra:
            raise
        except OutpaceError as error:
            self.found.append(str(error))
            return None


def plan(
    options: Options,
    target: Target,
    draft: Target | None,
    profile: CostProfile,
    eos_ids: frozenset[int] = frozenset(),
    compile_grammar: Callable[[Grammar], CompiledGrammar] | None = None,
    stores: Stores | None = None,
) -> Plan:
    """Returns the plan. eos_ids: those of the text side, beside the target's. compile_grammar: for its vocabulary.
    stores: for a drafter that uses them; no other reads them.

    Raises UsageError with every problem and its remedy, in one message.
    """
    problems = _Problems()
    if mistyped := _mistyped(options):  # no range can be looked at then
        raise UsageError("; ".join(mistyped))
    problems.found += _miscounts(options, target.vocab_size)
    seed = secrets.randbits(32) if options.seed is None else int(options.seed)
    params = problems.attempt(
        lambda: SamplingParams(  # NumPy's numbers are none to the native sampler
            float(options.temperature), int(options.top_k), float(options.top_p), float(options.min_p), seed
        )
    )
    problems.attempt(lambda: check_choice(options.choice + max(0, options.n - 1)))
    endings = options.endings(eos_ids | target.eos_ids)
    adjustments = problems.attempt(lambda: _adjustments(options, endings, target.vocab_size))
    rule: Rule | None = problems.attempt(lambda: RULES.get(options.rule)())
    name, reason = _choice(options, target, draft, rule)
    drafter: Drafter | None = problems.attempt(lambda: DRAFTERS.get(name)(target, draft))
    if stores is not None and isinstance(drafter, Remembering):
        drafter = drafter.remembering(stores.all)
    if drafter:
        problems.found += _misfits(target, drafter, draft, options.prediction is not None)
    grammar = problems.attempt(lambda: _grammar(options, compile_grammar))
    chains = not (rule is not None and rule.verifies_trees and target.scores_trees)
    controller = problems.attempt(lambda: _controller(options, name, drafter, target, profile, chains))
    if problems.found or not (params and adjustments and rule and drafter and controller):
        raise UsageError("; ".join(problems.found))
    fixed = options.draft_length is not None or name == "none"
    reproducible = rule.shares_noise or fixed or (params.greedy and rule.lossless)
    longest = 0 if name == "none" else LONGEST if options.draft_length is None else options.draft_length
    return Plan(
        params,
        adjustments,
        endings,
        seed,
        options.choice,
        rule,
        drafter,
        controller,
        reason,
        reproducible,
        profile,
        grammar,
        longest if grammar else 0,
    )


def _mistyped(options: Options) -> list[str]:
    """Returns which options are no numbers, or no text, where they must be. True is no number here."""
    found = []
    for names, kind, wanted in ((WHOLE, Integral, "a whole number"), (REAL, Real, "a number")):
        for name in names:
            value = getattr(options, name)
            if value is None and name in OPTIONAL:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                found.append(f"{name} must be {wanted}, got {value!r:.40}")
            elif kind is Real and isinstance(value, int) and abs(value) > sys.float_info.max:
                found.append(f"{name} must be {wanted} that a float can hold, got one of {value.bit_length()} bits")
    found += [
        f"{name} must be True or False, got {getattr(options, name)!r:.40}"
        for name in FLAGS
        if not isinstance(getattr(options, name), bool | np.bool_)
    ]
    found += [
        f"{name} must be a name, got {getattr(options, name)!r:.40}"
        for name in NAMES
        if not isinstance(getattr(options, name), str)
    ]
    if not isinstance(options.logit_bias, Mapping):
        return [*found, f"logit_bias must map tokens to numbers, got {options.logit_bias!r:.40}"]
    for token, bias in options.logit_bias.items():
        if not isinstance(bias, Real) or isinstance(bias, bool):
            found.append(f"logit_bias of token {token!r:.40} must be a number, got {bias!r:.40}")
    if not isinstance(options.prediction, str | None):
        found.append(f"prediction must be a text, got {type(options.prediction).__name__}")
    return found


def _miscounts(options: Options, vocab_size: int) -> list[str]:
    """Returns which numbers of tokens, choices or alternatives are out of range."""
    found = []
    if options.max_tokens < 1:
        found.append(f"max_tokens must be at least 1, got {options.max_tokens}")
    elif options.min_tokens > options.max_tokens:
        found.append(f"min_tokens must be at most max_tokens ({options.max_tokens}), got {options.min_tokens}")
    if not 1 <= options.n <= MAX_N:
        found.append(f"n must be in [1, {MAX_N}], got {options.n}")
    if options.logprobs is not None and not 0 <= options.logprobs <= vocab_size:
        found.append(f"logprobs must be in [0, {vocab_size}] alternatives, got {options.logprobs}")
    return found


def _adjustments(options: Options, endings: frozenset[int], vocab_size: int) -> Adjustments:
    check_ids("stop_ids", options.stop_ids, vocab_size)
    made = Adjustments(
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logit_bias=dict(options.logit_bias),
        banned=frozenset(options.banned),
        allowed=None if options.allowed is None else frozenset(options.allowed),
        min_tokens=options.min_tokens,
        withheld=endings,
    )
    made.check(vocab_size)
    return made


def _grammar(
    options: Options, compile_grammar: Callable[[Grammar], CompiledGrammar] | None
) -> CompiledGrammar | None:
    if options.grammar is None:
        return None
    if not isinstance(options.grammar, JsonSchema | Regex):
        raise UsageError(f"grammar must be a JsonSchema or a Regex, got {type(options.grammar).__name__}")
    if options.ignore_eos:
        raise UsageError("a grammar says where the text ends, and ignore_eos that it goes on: leave one of them out")
    if compile_grammar is None:
        raise UsageError("a grammar needs the model's vocabulary, which is not at hand here")
    return compile_grammar(options.grammar)


def _choice(options: Options, target: Target, draft: Target | None, rule: Rule | None) -> tuple[str, str]:
    """Returns the drafter's name and why it is that one.

    A head is looked at where noise is known to it that the tokens will be drawn with: there it knows much more than
    counts do. Of likeliest tokens, counts know so many that a look costs what it gains.
    """
    if options.drafter != AUTO:
        return options.drafter, "as asked"
    if options.prediction is not None:
        mixes = draft is not None and getattr(draft, "drafter", "mixture") == "mixture"
        return "mixture" if mixes else "suffix", "copies from the prediction"
    if draft is not None:
        name = getattr(draft, "drafter", "mixture")
        return name, f"suffixes, and drafts by {draft.name}" if name == "mixture" else f"drafts by {draft.name}"
    if options.temperature > 0 and rule is not None and rule.shares_noise and _has_head(target):
        return "blend", "automatic, suffixes and the target's head"
    return "suffix", "automatic, no draft model given"


def _has_head(target: Target) -> bool:
    """Returns whether `blend` finds a head for the target, which is remembered with it."""
    if target.engine != "native":
        return False
    try:
        DRAFTERS.get("blend")(target, None)
    except OutpaceError:
        return False
    return True


def _controller(
    options: Options, name: str, drafter: Drafter | None, target: Target, profile: CostProfile, chains: bool
) -> Controller:
    if options.draft_length is not None:
        return FixedController(options.draft_length, chains=chains)
    if name == "none" or drafter is None:
        return FixedController(0)
    patience = MODEL_PATIENCE if drafter.weight_bytes > SMALL * target.weight_bytes else FREE_PATIENCE
    if drafter.weight_bytes and target.weight_bytes and profile.plain_seconds and name not in profile.draft:
        profile.expect_drafts(name, profile.plain_seconds * drafter.weight_bytes / target.weight_bytes)
    return MeasuredController(
        profile,
        name,
        self_limiting=drafter.self_limiting,
        chains=chains,
        patience=patience,
    )


def _misfits(target: Target, drafter: Drafter, draft: Target | None, predicted: bool) -> list[str]:
    """Returns what these cannot do together, each with its remedy. predicted: the answer is, by the caller."""
    found = []
    if drafter.name in ("model", "mixture") and getattr(draft, "drafter", None) == "published":
        found.append(f"drafter {drafter.name!r} drafts with a model, and the draft is a head: use 'published'")
    if predicted and not isinstance(drafter, Copying):
        found.append(
            f"drafter {drafter.name!r} copies from no prediction: use 'suffix', 'ngram' or 'mixture', "
            "or leave the prediction out"
        )
    if drafter.taps and max(drafter.taps) > target.hidden_layers:
        found.append(
            f"drafter {drafter.name!r} needs the hidden states of layer {max(drafter.taps)}, "
            f"the target offers {target.hidden_layers}: use 'suffix'"
        )
    return found
