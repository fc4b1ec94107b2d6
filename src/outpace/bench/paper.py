"""The experiment of the founding paper: T5 translates and summarises, and a smaller T5 drafts.

Leviathan, Kalman and Matias 2023, tables 2 and 3: tasks, draft lengths and figures, beside what is measured here with
any encoder-decoder and draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outpace.api import Model
from outpace.bench.intervals import Interval, of_totals
from outpace.errors import UsageError
from outpace.result import Result
from outpace.theory.speedup import improvement, tokens_per_step

SEED = 20230
REPEATS = 2
"""Runs of each text and way, interleaved; the shorter one counts."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the paper reports of T5-XXL with T5-small as draft, on a TPU v4."""

    acceptance: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """A task. prefix: what T5 was trained to read before a text. draft_length and published: the paper's, the latter
    by temperature."""

    name: str
    prefix: str
    texts: tuple[str, ...]
    draft_length: int
    published: dict[float, Published]


TRANSLATION = Experiment(
    "translation",
    "translate English to German: ",
    (
        "The ferry to the island leaves at seven in the morning and returns before dark.",
        "Please send the signed contract to our office by the end of the week.",
        "Scientists have found traces of water under the surface of the moon.",
        "She has lived in this town for twenty years and knows every street.",
        "The committee will discuss the new rules for public transport on Thursday.",
        "Because of the storm, all trains between the two cities were cancelled.",
        "We should buy bread, milk and a few apples on the way home.",
        "The museum shows paintings from the nineteenth century on its second floor.",
    ),
    7,
    {0.0: Published(0.75, 3.4), 1.0: Published(0.62, 2.6)},
)
SUMMARISATION = Experiment(
    "summarisation",
    "summarize: ",
    (
        "The city council decided on Monday to close the old bridge over the river for six months. Engineers had "
        "found cracks in two of its pillars during an inspection in spring. Buses will take a longer way through the "
        "northern district, and cyclists may use the railway bridge. The repairs will cost about four million euros, "
        "half of which the state pays. Shop owners near the bridge fear that they will lose customers.",
        "A small team of biologists spent three winters on the coast to count seals. They used drones with infrared "
        "cameras, which see the warm animals even at night. The number of seals has doubled since the fishing rules "
        "were changed ten years ago. Fishermen say that the seals now damage their nets. The team will publish its "
        "data next year and advises against hunting, since the population may fall again by itself.",
        "The school in the valley had only eleven pupils last year and was to be closed. Parents then founded an "
        "association, renovated two rooms and invited families from the cities to move there. Today thirty children "
        "attend the school, and a second teacher was hired. The mayor says that the village shop opened again, too. "
        "Other villages in the region want to follow the example.",
    ),
    5,
    {0.0: Published(0.65, 3.1), 1.0: Published(0.53, 2.3)},
)
EXPERIMENTS = {one.name: one for one in (TRANSLATION, SUMMARISATION)}


@dataclass(frozen=True, slots=True)
class Line:
    """One task at one temperature. acceptance: alpha, accepted guesses of those that were tested. cost: c, a drafted
    token's time in plain passes. expected: tokens a step by the paper's equation 1. predicted: its theorem 3.8."""

    task: str
    temperature: float
    draft_length: int
    texts: int
    acceptance: Interval
    cost: float
    tokens_per_step: float
    expected: float
    predicted: float
    speedup: Interval
    equal: bool | None
    published: Published | None

    def record(self) -> dict[str, object]:
        """Returns it as JSON has it."""
        own = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("acceptance", "speedup", "published")
        }
        paper = self.published and {"acceptance": self.published.acceptance, "speedup": self.published.speedup}
        return own | {"acceptance": self.acceptance.record(), "speedup": self.speedup.record(), "published": paper}


def run_paper(
    model: Model,
    tasks: Sequence[str] = tuple(EXPERIMENTS),
    *,
    temperatures: Sequence[float] = (0.0, 1.0),
    texts: Sequence[str] = (),
    draft_length: int | None = None,
    rule: str = "rejection",
    max_tokens: int = 128,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[Line]:
    """Returns a line for each task and temperature, plain and drafted runs interleaved.

    texts: instead of the built-in ones. draft_length: instead of the paper's. Raises UsageError for an unknown task,
    and for a model without an encoder or a draft.
    """
    unknown = [name for name in tasks if name not in EXPERIMENTS]
    if unknown:
        raise UsageError(f"task must be one of {', '.join(EXPERIMENTS)}, got {unknown[0]!r:.40}")
    if model.draft is None:
        raise UsageError("the experiment needs a draft model: name one (--draft MODEL)")
    if getattr(model.target, "start_ids", None) is None:
        raise UsageError(f"{model.target.name} is no encoder-decoder: the experiment is for T5 and its kind")
    lines: list[Line] = []
    for name in tasks:
        experiment = EXPERIMENTS[name]
        length = experiment.draft_length if draft_length is None else draft_length
        asked = [experiment.prefix + text for text in texts or experiment.texts]
        for temperature in temperatures:
            pairs = [_pair(model, text, temperature, length, rule, max_tokens) for text in asked]
            lines.append(_line(experiment, temperature, length, pairs))
            progress(len(lines) / (len(tasks) * len(temperatures)))
    return lines


def _pair(
    model: Model, text: str, temperature: float, length: int, rule: str, max_tokens: int
) -> tuple[Result, Result]:
    """Returns the plain and the drafted result of a text, of the turn with the median ratio of their times."""
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": SEED}
    turns: list[tuple[Result, Result]] = []
    for _ in range(REPEATS):
        plain = model.generate(text, drafter="none", **settings)
        turns.append((plain, model.generate(text, drafter="model", draft_length=length, rule=rule, **settings)))
    turns.sort(key=lambda turn: turn[0].seconds.decode / turn[1].seconds.decode)
    return turns[(REPEATS - 1) // 2]


def _line(experiment: Experiment, temperature: float, length: int, pairs: Sequence[tuple[Result, Result]]) -> Line:
    rows, accepted = [], []
    for plain, drafted in pairs:
        # A sampled text under `rejection` is another text of the same law, so speed is compared by the token.
        rows.append([len(plain.tokens), plain.seconds.decode, len(drafted.tokens), drafted.seconds.decode])
        rejected = sum(step.accepted < step.drafted and not step.finish for step in drafted.steps)
        accepted.append([drafted.accepted, drafted.accepted + rejected])
    alpha = of_totals(accepted, lambda t: t[..., 0] / t[..., 1].clip(1))
    speed = of_totals(rows, lambda t: t[..., 2] / t[..., 3] * t[..., 1] / t[..., 0])
    plain_pass = sum(p.seconds.score for p, _ in pairs) / sum(len(p.steps) for p, _ in pairs)
    guesses = sum(d.drafted for _, d in pairs)
    cost = sum(d.seconds.draft for _, d in pairs) / max(guesses, 1) / plain_pass
    steps = [step for _, d in pairs for step in d.steps if not step.finish]
    return Line(
        experiment.name,
        temperature,
        length,
        len(pairs),
        alpha,
        cost,
        sum(len(step.tokens) for step in steps) / max(len(steps), 1),
        tokens_per_step(alpha.value, length),
        improvement(alpha.value, length, cost),
        speed,
        all(p.tokens == d.tokens for p, d in pairs) if temperature == 0 else None,
        experiment.published.get(temperature),
    )
