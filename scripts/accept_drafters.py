"""Drafters: default settings against plain decoding, what a wrong drafter costs, what a proposal and a token cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from acceptance import Line, NotRun, Outcome
from first_light.common import DATA, DRAFT, EMBEDDED, TARGET, file_of, load

import outpace
from outpace import models
from outpace.bench.drafter_curves import size_row
from outpace.bench.drafters import ALL, Report, measure, read_prompts
from outpace.bench.intervals import of_turns
from outpace.contexts import OWN_PRIOR, SLOTS, continuations, new_counts
from outpace.control import MeasuredController
from outpace.drafters.suffix import OWN_DEPTH
from outpace.models.store import search_folders
from outpace.options import FREE_PATIENCE
from outpace.registry import DRAFTERS
from outpace.types import EMPTY, Budget, Draft

PER_TASK, REPEATS = 10, 3
FILES = [DATA / "spec_bench_dev.jsonl", DATA / "humaneval_prompts.jsonl"]
MADE_DRAFT = "qwen2.5-coder-0.5b-draft.gguf"
"""What `outpace draft make` writes of the 0.5B for the 1.5B, in a folder of OUTPACE_MODELS."""


def default(name: str, draft: str | None, temperature: float, bounds: Sequence[float]) -> Iterator[Outcome]:
    """The default drafter: over all, by task (its lower bound), on code. bounds: of those three."""
    report = measured(name, draft, temperature, "auto")
    everything, each, code = bounds
    for row in report.rows:
        interval = f"{row.low:.2f} to {row.high:.2f}"
        if row.task == ALL:
            figure = f"{row.speedup:.2f} times plain, {row.tokens_per_step:.2f} tokens a step"
            passed = row.speedup >= everything
            yield Outcome(f"{name}, all tasks", figure, f"at least {everything}", passed, interval)
            continue
        yield Outcome(f"{name}, {row.task}", f"{row.speedup:.2f} times plain", f"lower bound at least {each}",
                      row.low >= each, interval)  # fmt: skip
        if row.task == "code" and code:
            yield Outcome(f"{name}, code", f"{row.speedup:.2f} times plain", f"at least {code}", row.speedup >= code)


def measured(name: str, draft: str | None, temperature: float, drafter: str) -> Report:
    model = load(name, draft)
    prompts = read_prompts(FILES, PER_TASK)
    return measure(model, prompts, [drafter], temperature=temperature, repeats=REPEATS)


def made_draft() -> str:
    for folder in search_folders():
        if (folder / MADE_DRAFT).exists():
            return str(folder / MADE_DRAFT)
    raise NotRun(f"{MADE_DRAFT} is not in OUTPACE_MODELS: make it with outpace draft make (see docs/performance.md)")


class AlwaysWrong:
    """A drafter that proposes what the target does not say; its own session."""

    name, drafts_trees, self_limiting, taps, weight_bytes = "wrong", False, True, (), 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def open(self, prompt: Any, context: Any, laws: Any) -> AlwaysWrong:
        return self

    def propose_many(self, work: Sequence[tuple[Any, Budget]]) -> list[Draft]:
        rare = self.vocab_size - 1
        return [Draft.chain([rare] * min(budget.depth, 4)) if budget.depth else EMPTY for _, budget in work]

    def observe(self, step: Any, scores: Any) -> None:
        pass

    def close(self) -> None:
        pass


def always_wrong() -> Iterator[Outcome]:
    """Drafts that are never right, under default control."""
    from dataclasses import replace

    model = load(EMBEDDED)
    ratios = []
    for prompt in read_prompts(FILES[:1], 2):
        times = {}
        for wrong in (False, True) * REPEATS:
            stream = model.stream(prompt.text, max_tokens=128, drafter="none")
            if wrong:
                drafter = AlwaysWrong(model.target.vocab_size)
                stream.plan = replace(stream.plan, drafter=drafter)
                stream.round.drafting = drafter.open(None, None, None)
                stream.round.controller = MeasuredController(
                    model.costs, "wrong", self_limiting=True, patience=FREE_PATIENCE
                )
                stream._rounds = generate_with(stream, model, drafter)
            times.setdefault(wrong, []).append(stream.run().seconds.decode)
        ratios.append(of_turns(times[False], times[True]))
    ratio = sum(plain for plain, _ in ratios) / sum(drafted for _, drafted in ratios)
    yield Outcome("always wrong, default control", f"{ratio:.3f} times plain", "at least 0.97", ratio >= 0.97)


def self_draft() -> Iterator[Outcome]:
    """The target as its own draft model: every guess is right, and none is worth its price."""
    model = load(EMBEDDED, EMBEDDED)
    late = drafting = 0
    for prompt in read_prompts(FILES[:1], 1):
        steps = model.generate(prompt.text, max_tokens=128, drafter="model").steps[8:]
        late += len(steps)
        drafting += sum(step.drafted > 0 for step in steps)
    share = 1 - drafting / late
    figure = f"{share:.3f} of rounds after the eighth are plain"
    yield Outcome("a draft as dear as its target", figure, "at least 0.95", share >= 0.95)


def generate_with(stream: Any, model: Any, drafter: Any) -> Any:
    from outpace.decode import generate

    return generate(stream.round, model.target, drafter)


def proposals() -> Iterator[Outcome]:
    """Microseconds of a proposal of eight nodes by history, and bytes of memory a token."""
    chance, medians = Random(0), {}
    for size in (1_000, 10_000, 100_000, 1_000_000):
        # Zipf-like: a few tokens are most of a text, so contexts recur as they do in language.
        text = [int(8000 * chance.random() ** 4) for _ in range(size)]
        counts = new_counts(OWN_DEPTH)
        for start in range(0, size, 50_000):
            counts.feed(text[max(0, start - OWN_DEPTH) : start + 50_000], min(start, OWN_DEPTH))
        seconds = []
        for _ in range(300):
            place = chance.randrange(OWN_DEPTH, size)
            tail = text[place - OWN_DEPTH : place]
            begun = perf_counter()
            continuations([(counts, OWN_PRIOR)], tail, 8, (0.0,) * 8, SLOTS, 1.0)
            seconds.append(perf_counter() - begun)
        medians[size] = statistics.median(seconds)
        yield Outcome(f"proposal of 8 nodes after {size:,} tokens", f"{1e6 * medians[size]:.1f} microseconds",
                      "under 50", medians[size] < 50e-6)  # fmt: skip
        yield Outcome(f"memory after {size:,} tokens", f"{counts.nbytes / size:.0f} bytes a token",
                      f"at most {OWN_DEPTH * 56 + 64}", counts.nbytes / size <= OWN_DEPTH * 56 + 64)  # fmt: skip


def draft_cost() -> Iterator[Outcome]:
    """What the cut-down draft costs and how often it is right, beside the one that it was cut from."""
    file_of(TARGET)
    for draft in (DRAFT, made_draft()):
        model = load(TARGET, draft)
        assert model.draft is not None
        cost = model.costs.drafting("model")(1)
        drafted = accepted = 0
        for prompt in read_prompts(FILES, 2):
            result = model.generate(prompt.text, max_tokens=96, drafter="model", draft_length=4)
            drafted, accepted = drafted + result.drafted, accepted + result.accepted
        yield Outcome(f"{model.draft.name}", f"c {cost:.2f}, {accepted / drafted:.2f} of drafts of 4 accepted",
                      "reported", True)  # fmt: skip


FOUNDING = (
    (DRAFT, "model", "the 0.5B"),
    (DRAFT, "mixture", "the 0.5B and suffixes"),
    (TARGET, "model", "itself at 4 bits"),
    (TARGET, "mixture", "itself at 4 bits and suffixes"),
)
"""Drafts for the 1.5B in bf16: the file that it was exported from holds the same weights at 4 bits."""


def founding() -> Iterator[Outcome]:
    """The founding papers' regime: a target whose passes are dear, a draft at an eighth of them; 12 prompts."""
    prompts = [*read_prompts(FILES[:1], 1), *read_prompts(FILES[1:], 4)]
    with TemporaryDirectory() as folder:
        exported = models.export(file_of(TARGET), Path(folder) / "bf16")
        for draft, drafter, label in FOUNDING:
            file_of(draft)
            with outpace.load(exported, draft=draft, threads=2, context=4096) as model:
                report = measure(model, prompts, [drafter], repeats=1)
                cost = model.costs.drafting("model")(1)
            for row in report.rows:
                if row.task not in (ALL, "code"):
                    continue
                measured = f"{row.speedup:.2f} times plain; {row.tokens_per_step:.2f} tokens a step"
                if drafter == "model":  # a mixture's tokens come from two sources at two prices
                    formula = row.tokens_per_step / (1 + cost * row.drafted_per_step)
                    measured += f", c {cost:.2f}: formula {formula:.2f}"
                least = 1.7 if row.task == ALL else 2.5
                yield Outcome(
                    f"drafted by {label}, {row.task}",
                    measured,
                    f"at least {least}",
                    row.speedup >= least,
                    f"{row.low:.2f} to {row.high:.2f}",
                )


HARD = ("multi_turn: writing", "multi_turn: roleplay", "json")


def hard_kinds() -> Iterator[Outcome]:
    """What repeats itself least, and JSON by a schema: five prompts a kind, default drafters of both models."""
    if find_spec("llguidance") is None:
        raise NotRun("JSON by a schema needs the extra 'structured': pip install 'outpace[structured]'")
    prompts = [p for p in read_prompts([FILES[0], DATA / "schema_prompts.jsonl"], 5) if p.task in HARD]
    for name in (EMBEDDED, TARGET):
        report = measure(load(name), prompts, ["suffix"], repeats=REPEATS)
        for row in report.rows:
            if row.task != ALL:
                yield Outcome(f"{name}, {row.task}", f"{row.speedup:.2f} times plain", "lower bound at least 0.97",
                              row.low >= 0.97, f"{row.low:.2f} to {row.high:.2f}")  # fmt: skip


SIZES = (DRAFT, "cut", EMBEDDED, "suffix", "bigram", "unigram")


def draft_sizes() -> Iterator[Outcome]:
    """Drafts for the 1.5B from large to none, as table 2 of Leviathan et al. (2023)."""
    prompts = read_prompts(FILES, 1)
    found = []
    for draft in SIZES:
        name = made_draft() if draft == "cut" else draft
        drafter = draft if draft in DRAFTERS.names() else "model"
        if drafter == "model" and draft != "cut":
            file_of(name)
        translate = "token" if draft == EMBEDDED else None
        given = name if drafter == "model" else None
        with outpace.load(TARGET, draft=given, threads=2, context=4096, translate=translate) as model:
            found.append(size_row(draft, model, drafter, prompts, max_tokens=64))
    best = max(found, key=lambda row: row.measured)
    for row in found:
        yield Outcome(
            f"{row.draft}, {row.draft_bytes / 1e6:.0f} MB a token",
            f"alpha {row.acceptance:.2f}, c {row.cost:.2f}; best length {row.length}: predicted {row.predicted:.2f}, "
            f"measured {row.measured:.2f} times plain" + (" (best)" if row is best else ""),
            f"ceiling {row.ceiling:.2f}, formula {row.formula:.2f}",
            True,
        )


LINES: list[Line] = [
    ("proposals", "suffix proposals are flat in the history, memory a token is bounded", proposals),
    ("embedded", "embedded model, greedy, default", lambda: default(EMBEDDED, None, 0.0, (1.8, 0.97, 1.8))),
    ("embedded-sampled", "embedded model, temperature 1", lambda: default(EMBEDDED, None, 1.0, (1.3, 0.96, 0))),
    ("alone", "1.5B, greedy, no draft model", lambda: default(TARGET, None, 0.0, (1.6, 0.97, 2.0))),
    ("alone-sampled", "1.5B, temperature 1, no draft model", lambda: default(TARGET, None, 1.0, (1.3, 0.96, 0))),
    ("pair", "1.5B, greedy, cut-down draft", lambda: default(TARGET, made_draft(), 0.0, (1.6, 0.97, 2.0))),
    ("pair-sampled", "1.5B, temperature 1", lambda: default(TARGET, made_draft(), 1.0, (1.3, 0.96, 0))),
    ("always-wrong", "a drafter that is always wrong", always_wrong),
    ("hard-kinds", "writing, roleplay, JSON by a schema", hard_kinds),
    ("self-draft", "a draft model that costs what its target does", self_draft),
    ("founding", "1.5B in bf16, greedy, drafts at an eighth and a third of its passes", founding),
    ("draft-sizes", "1.5B: drafts by size", draft_sizes),
    ("draft-cost", "1.5B: the 0.5B whole and cut down", draft_cost),
]
