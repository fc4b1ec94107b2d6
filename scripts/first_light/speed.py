"""Forward passes against their floors and llama.cpp, the loop's own time, and default settings against plain."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from acceptance import NotRun, Outcome

from first_light.common import DRAFT, EMBEDDED, TARGET, file_of, load, per_task
from outpace.api import Model
from outpace.bench.intervals import of_turns
from outpace.result import Result
from outpace.sampling import Fused
from outpace.targets.native import NativeSession, NativeTarget
from outpace.theory.costs import StepCosts, measured, speedup

LIMITS = {EMBEDDED: (1.6, 2.0), TARGET: (1.3, 1.6)}  # rows 1-4 and 5-8, times the floor
GOALS = {EMBEDDED: (1.3, 1.5), TARGET: (1.1, 1.25)}


def floors(name: str) -> Iterator[Outcome]:
    report = kernels(name)
    for line in report["forward"]:
        rows, seconds, floor = line["rows"], line["seconds"], line["floor_seconds"]
        if line["context"] != 128 or rows > 8:
            continue
        limit, goal = LIMITS[name][rows > 4], GOALS[name][rows > 4]
        ratio = seconds / floor
        yield Outcome(f"{name}, {rows} rows at context 128", f"{seconds * 1e3:.2f} ms, {ratio:.2f} times the floor",
                      f"at most {limit} (goal {goal})", ratio <= limit)  # fmt: skip


def against_llama_cpp(name: str, one_row: float) -> Iterator[Outcome]:
    report = kernels(name, "--peers")
    peer = report["peer"]
    ours = {line["rows"]: line["seconds"] for line in report["forward"] if line["context"] == peer["context"]}
    theirs = {line["rows"]: line["seconds"] for line in peer["forward"]}
    for rows, least in ((1, one_row), (8, 3.5)):
        ratio = theirs[rows] / ours[rows]
        yield Outcome(f"{name}, {rows} rows", f"{ratio:.2f} times as fast as {peer['name']} {peer['version']}",
                      f"at least {least}", ratio >= least)  # fmt: skip
    ratio = report["prefill_tokens_per_s"] / peer["prefill_tokens_per_s"]
    yield Outcome(f"{name}, prefill of 128", f"{report['prefill_tokens_per_s']:.0f} tokens/s, {ratio:.2f} times",
                  "at least 1.5", ratio >= 1.5)  # fmt: skip


def kernels(name: str, *options: str) -> dict[str, Any]:
    """Returns what `outpace bench kernels --json` says, measured in a process of its own."""
    file_of(name)
    command = ["bench", "kernels", "--model", name, "--threads", "2", "--json", *options]
    done = subprocess.run([sys.executable, "-m", "outpace", *command], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(done.stderr.strip())
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def engine_clock() -> Iterator[list[float]]:
    """Yields [seconds], the time spent in the engine's C++ calls: the forward, the draws and the commits."""
    spent, originals = [0.0], []
    for owner, name in ((NativeTarget, "score_many"), (NativeSession, "commit"), (Fused, "draw")):
        original = getattr(owner, name)
        originals.append((owner, name, original))

        def timed(*arguments: Any, original: Callable[..., Any] = original) -> Any:
            start = perf_counter()
            try:
                return original(*arguments)
            finally:
                spent[0] += perf_counter() - start

        setattr(owner, name, timed)
    try:
        yield spent
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def overhead(name: str, limit: float) -> Iterator[Outcome]:
    """Share of decoding outside the C++ engine, plain and drafted."""
    model = load(name)
    for drafter in ("none", "ngram"):
        shares = []
        for _, prompt in per_task(2):
            with engine_clock() as spent:
                seconds = model.generate(prompt, max_tokens=96, drafter=drafter).seconds
            shares.append(1 - spent[0] / seconds.decode)
        share = statistics.median(shares)
        yield Outcome(f"{name}, {drafter}", f"{100 * share:.1f} % of a step", f"under {100 * limit:.0f} %",
                      share < limit, f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %")  # fmt: skip


Rate = tuple[float, float, float]


def ratio_to_plain(model: Model, prompts: list[tuple[str, str]], repeats: int = 3, **options: Any) -> Rate:
    """Returns the speed-up over plain decoding and its 95 % bootstrap interval over prompts.

    Runs are interleaved and alternate in order.
    """
    times = []
    for index, (_, prompt) in enumerate(prompts):
        spent: dict[str, list[float]] = {"plain": [], "drafted": []}
        for repeat in range(repeats):
            runs = [("plain", {"drafter": "none"}), ("drafted", options)]
            for name, settings in runs if (index + repeat) % 2 else reversed(runs):
                spent[name].append(model.generate(prompt, max_tokens=96, **settings).seconds.decode)
        times.append(of_turns(spent["plain"], spent["drafted"]))
    table = np.array(times)
    draws = np.random.default_rng(0).integers(0, len(table), (2000, len(table)))
    sums = table[draws].sum(axis=1)
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    plain, drafted = table.sum(axis=0)
    return float(plain / drafted), float(low), float(high)


def never_slower() -> Iterator[Outcome]:
    for name in (EMBEDDED, TARGET):
        model = load(name)
        tasks = sorted({task for task, _ in per_task(1)})
        for task in tasks:
            chosen = [p for p in per_task(4) if p[0] == task]
            value, low, high = ratio_to_plain(model, chosen)
            yield Outcome(f"{name}, default, {task}", f"{value:.2f} times plain", "at least 0.97", value >= 0.97,
                          f"{low:.2f} to {high:.2f}")  # fmt: skip
    code = per_task(8, "humaneval_prompts.jsonl")
    value, low, high = ratio_to_plain(load(TARGET), code, drafter="ngram")
    yield Outcome(f"{TARGET}, ngram on code", f"{value:.2f} times plain", "at least 1.4", value >= 1.4,
                  f"{low:.2f} to {high:.2f}")  # fmt: skip


def draft_model() -> Iterator[Outcome]:
    """The 0.5B as a draft: acceptance, c and what the cost model predicts beside what was measured."""
    model, prompts = load(TARGET, DRAFT), per_task(2)
    target = model.target
    one = target.profile_rows(1)
    rows = {n: target.profile_rows(n) for n in (1, 2, 3, 5, 9)}
    results: list[Result] = [model.generate(p, max_tokens=96, drafter="model", draft_length=4) for _, p in prompts]
    drafted = sum(r.drafted for r in results)
    accepted = sum(r.accepted for r in results)
    cost = sum(r.seconds.draft for r in results) / drafted
    tokens = sum(len(r.tokens) for r in results) / sum(len(r.steps) for r in results)
    costs = StepCosts(measured(list(rows.items())), draft_seconds_per_token=cost)
    predicted = speedup(tokens, 4, costs)
    value, low, high = ratio_to_plain(model, prompts, repeats=2, drafter="model", draft_length=4)
    yield Outcome("0.5B draft of 4, acceptance", f"{accepted / drafted:.2f}", "reported", True)
    yield Outcome("0.5B draft, cost of a token over a plain pass (c)", f"{cost / one:.2f}", "reported", True)
    yield Outcome("0.5B draft, speed-up predicted and measured", f"{predicted:.2f} and {value:.2f}", "reported", True,
                  f"{low:.2f} to {high:.2f}")  # fmt: skip
    value, low, high = ratio_to_plain(model, prompts, repeats=2)
    yield Outcome("pair, default control", f"{value:.2f} times plain", "at least 0.97", value >= 0.97,
                  f"{low:.2f} to {high:.2f}")  # fmt: skip


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("floors", "embedded model: forward passes against their floor", lambda: floors(EMBEDDED)),
    ("pair-floors", "1.5B: forward passes against their floor", lambda: floors(TARGET)),
    ("peers", "embedded model beside llama.cpp in one run", lambda: against_llama_cpp(EMBEDDED, 2.0)),
    ("pair-peers", "1.5B beside llama.cpp in one run", lambda: against_llama_cpp(TARGET, 1.0)),
    ("overhead", "embedded model: time outside the engine", lambda: overhead(EMBEDDED, 0.05)),
    ("pair-overhead", "1.5B: time outside the engine", lambda: overhead(TARGET, 0.02)),
    ("never-slower", "default settings against plain decoding; n-grams on code", never_slower),
    ("draft-model", "the 0.5B drafting for the 1.5B", draft_model),
]
