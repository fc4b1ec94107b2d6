"""`outpace audit law`: the joint law of the next tokens of the real loop, against the target's exact law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import TypeAlias

from outpace.api import Model
from outpace.audit.branching import BranchingDrafter
from outpace.audit.law_controls import LEAST_VARIATION, model_controls, table_controls
from outpace.audit.loops import Loop, Tokens
from outpace.audit.model import absent_task
from outpace.audit.outcomes import Outcomes, Probs, exact_probs, outcomes
from outpace.audit.perturbed import Perturbed
from outpace.audit.prompts import TEXTS
from outpace.audit.recorded import Recorded
from outpace.audit.report import Control, Finding, Minutes, Progress, Report, Task, perform, try_controls
from outpace.audit.statistics import fit, texts_to_see
from outpace.audit.texts import lossless_rules
from outpace.control import FixedController
from outpace.drafters.model import ModelDrafter
from outpace.processors import Adjustments
from outpace.registry import DRAFTERS, RULES, usable_drafters
from outpace.sampling import SamplingParams
from outpace.types import Drafter, Target

TOTAL_LEVEL = 1e-3
"""Chance that a right build fails anywhere in the audit, over the choice of seeds (which are fixed)."""

HORIZON = 3
NODES = 4
"""Of a drafted tree: two siblings, and two below the first."""
SPREAD = 1.0
"""Standard deviation of the error on a perturbed target's logits: about half of its guesses are accepted."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Sampling parameters under which the law is compared, with chains of so many tokens.

    After a chain of 2 the third token is a bonus; with chains of 1 it comes from a second round.
    """

    name: str
    length: int
    params: SamplingParams = field(default_factory=SamplingParams)
    adjustments: Adjustments = field(default_factory=Adjustments)


SETTINGS = (
    Setting("temperature 1", 2),
    Setting("temperature 0.7, top_p 0.9", 1, SamplingParams(temperature=0.7, top_p=0.9)),
    Setting("top_k 20", 2, SamplingParams(top_k=20)),
    Setting("min_p 0.1", 3, SamplingParams(min_p=0.1)),
    Setting(
        "penalties, temperature 0.7, top_p 0.9",
        2,
        SamplingParams(temperature=0.7, top_p=0.9),
        Adjustments(repetition_penalty=1.3, frequency_penalty=0.7, presence_penalty=0.5),
    ),
)
MUTANT_SETTING = Setting("min_p 0.1", 2, SamplingParams(min_p=0.1))
"""Where mutants are tried on the model: likely corrections, and a bonus as third token."""

UNTESTED = (
    "the law beyond the next three tokens, and within the cells that stand for many tokens",
    "differences smaller than the total variation stated with each test",
    "other contexts and parameters than these",
)


@dataclass(frozen=True, slots=True)
class LawExtent:
    """How much is drawn. n: texts of each test on remembered rows; live: of each on the engine itself.

    variation: one test a rule has as many texts as it takes to see this total variation, of any shape, with power
    0.99; None for no such test. most: beginnings that are split further.
    """

    n: int = 2500
    variation: float | None = LEAST_VARIATION
    live: int = 400
    checked: int = 16
    most: int = 10
    settings: Sequence[Setting] = SETTINGS
    tree_settings: Sequence[Setting] = (SETTINGS[0], SETTINGS[2], SETTINGS[4])


QUICK_LAW = LawExtent(500, None, 100, 8, 5, (SETTINGS[1], SETTINGS[4]), (SETTINGS[3],))
"""A fixed subset, for continuous integration."""


Case: TypeAlias = tuple[str, str, Callable[..., Finding]]
"""Group, name, and the test, which takes its level."""


class Laws:
    """A model's loops and the exact laws that they must have."""

    def __init__(self, model: Model, extent: LawExtent) -> None:
        self.live = model.target
        self.recorded = Recorded(model.target)
        self.extent = extent
        self.prompts = [tuple(model.text.encode(text, special=False)) for text in TEXTS[:3]]
        self._outcomes: dict[tuple[str, Tokens, float], Outcomes] = {}

    def loop(self, target: Target, drafter: Drafter, rule: str, prompt: Tokens, setting: Setting) -> Loop:
        """Returns a right loop."""
        length = NODES if drafter.drafts_trees else setting.length
        return Loop(
            target,
            drafter,
            RULES.get(rule)(),
            prompt,
            HORIZON,
            setting.params,
            setting.adjustments,
            lambda: FixedController(length),
        )

    def outcomes(self, prompt: Tokens, setting: Setting, n: int) -> Outcomes:
        """Returns the exact law after a prompt, with cells that n texts can fill."""
        key = (setting.name, prompt, n)
        if key not in self._outcomes:

            def after(tokens: Tokens) -> Probs:
                before = prompt + tokens
                row = self.recorded.rows(prompt, [before])[before]
                return exact_probs(row, before, len(prompt), setting.params, setting.adjustments)

            self._outcomes[key] = outcomes(after, HORIZON, least=10 / n, most=self.extent.most)
        return self._outcomes[key]

    def chain(self, target: Target) -> ModelDrafter:
        """Returns a drafter of chains that is often wrong."""
        return ModelDrafter(Perturbed(target, SPREAD), target.vocab_size)

    def tree(self, target: Target) -> ModelDrafter:
        """Returns a drafter of trees that is often wrong."""
        return BranchingDrafter(Perturbed(target, SPREAD), target.vocab_size)

    def check(
        self,
        drafter: str,
        rule: str,
        prompt: Tokens,
        setting: Setting,
        variation: float | None = None,
        *,
        level: float,
    ) -> Finding:
        """Compares the law on remembered rows; the first seeds must give the engine's own texts.

        variation: what must be seen with power 0.99, so that n follows from it.
        """
        make = self.tree if drafter == "tree" else self.chain
        loop = self.loop(self.recorded, make(self.recorded), rule, prompt, setting)
        n, checked = self.extent.n, self.extent.checked
        exact = self.outcomes(prompt, setting, n)
        if variation:
            n = texts_to_see(variation, len(exact.law), level)
        texts = loop.counts(range(n))
        if self.live.bit_exact:
            first = [*loop.texts(range(checked))]
            live = [*self.loop(self.live, make(self.live), rule, prompt, setting).texts(range(checked))]
            if first != live:
                return Finding(False, f"remembered rows give other texts than the engine: {first}, {live}")
        found = fit(exact.count(texts), exact.law, level)
        return Finding(found.holds, str(found))

    def check_live(self, drafter: Drafter, rule: str, prompt: Tokens, setting: Setting, *, level: float) -> Finding:
        """Compares the law of a registered drafter on the engine itself."""
        n = self.extent.live
        texts = self.loop(self.live, drafter, rule, prompt, setting).counts(range(n))
        exact = self.outcomes(prompt, setting, n)
        found = fit(exact.count(texts), exact.law, level)
        return Finding(found.holds, str(found))


def audit_law(
    model: Model,
    *,
    wanted: Sequence[str] = (),
    minutes: Minutes | None = None,
    extent: LawExtent | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Returns the audit of the law under every lossless rule, with drafts that are often wrong and every drafter.

    Raises UsageError for a drafter that is not registered.
    """
    minutes, extent = minutes or Minutes(), extent or LawExtent()
    if model.draft is None:
        model = Model(model.target, model.text, model.target, load_seconds=model.load_seconds)
    laws = Laws(model, extent)
    usable, absent = usable_drafters(model.target, model.draft, wanted)
    made = {name: DRAFTERS.get(name)(model.target, model.draft) for name in usable}
    cases = [*_cases(laws, made)]
    level = TOTAL_LEVEL / len(cases)
    controls = [*_controls(laws)]
    broken = try_controls(controls, progress)
    tasks = [Task(group, name, partial(run, level=level)) for group, name, run in cases]
    tasks += [absent_task(name, why) for name, why in absent.items()]
    checks = perform(tasks, minutes, progress)
    facts = {
        "model": model.target.name,
        "engine": model.target.engine,
        "threads": str(model.target.threads),
        "drafters": ", ".join(["perturbed target (chains, trees)", *usable]),
        "texts a test": f"{extent.n} and more; {extent.live} with registered drafters, on the engine itself",
        "level": f"{level:.2g} a test, {TOTAL_LEVEL} in all; seeds fixed",
    }
    return Report("law", model.target.name, checks, broken, UNTESTED, facts).timed(minutes)


def _cases(laws: Laws, made: dict[str, Drafter]) -> Iterator[Case]:
    """Yields every test; contexts take turns."""
    prompts = cycle(laws.prompts)
    if (variation := laws.extent.variation) is not None:
        for rule in lossless_rules():
            run = partial(laws.check, "chain", rule, laws.prompts[1], MUTANT_SETTING, variation)
            name = f"chain of {MUTANT_SETTING.length}, {MUTANT_SETTING.name}, total variation {variation:g} seen"
            yield f"law of {rule}", name, run
    for setting in laws.extent.settings:
        prompt = next(prompts)
        for rule in lossless_rules():
            yield (
                f"law of {rule}",
                f"chain of {setting.length}, {setting.name}",
                partial(laws.check, "chain", rule, prompt, setting),
            )
    for setting in laws.extent.tree_settings:
        prompt = next(prompts)
        for rule in lossless_rules():
            if RULES.get(rule)().verifies_trees:
                yield f"law of {rule}", f"tree, {setting.name}", partial(laws.check, "tree", rule, prompt, setting)
    contexts = cycle(laws.prompts[:2])  # the third leaves next to no choice with few texts
    for name, drafter in made.items():
        for rule in lossless_rules():
            if drafter.drafts_trees and not RULES.get(rule)().verifies_trees:
                continue
            run = partial(laws.check_live, drafter, rule, next(contexts), MUTANT_SETTING)
            yield f"law of {rule}", f"{name}, {MUTANT_SETTING.name}, on the engine", run


def _controls(laws: Laws) -> Iterator[Control]:
    yield from table_controls()
    setting, prompt, n = MUTANT_SETTING, laws.prompts[1], laws.extent.n
    loop = laws.loop(laws.recorded, laws.chain(laws.recorded), "rejection", prompt, setting)
    yield from model_controls(loop, laws.outcomes(prompt, setting, n), n)
