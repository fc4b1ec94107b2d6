"""What drawing a token costs beside the forward pass that gave its logits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from acceptance import Outcome
from first_light.common import EMBEDDED, SEED, TARGET, load, per_task

from outpace.sampling import Fused
from outpace.targets.native import NativeTarget

LIMIT = 0.03
SETTINGS: tuple[dict[str, float], ...] = (
    {"top_p": 0.9},
    {"top_p": 0.95},
    {"top_p": 0.95, "top_k": 50},
    {"top_p": 0.95, "min_p": 0.02},
)


@contextmanager
def stopwatch(owner: type, name: str) -> Iterator[list[float]]:
    """Yields the seconds of every call of a method."""
    spent: list[float] = []
    original: Callable[..., Any] = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        start = perf_counter()
        try:
            return original(*arguments)
        finally:
            spent.append(perf_counter() - start)

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, original)


def sampler(tokens: int = 32) -> Iterator[Outcome]:
    """Seconds of all draws over those of all passes, plain decoding of one prompt of each task at temperature 1."""
    for name in (EMBEDDED, TARGET):
        model = load(name)
        for settings in SETTINGS:
            shares, draws, passes = [], [], []
            for index, (_, prompt) in enumerate(per_task(1)):
                with stopwatch(NativeTarget, "score_many") as scored, stopwatch(Fused, "draw") as drawn:
                    model.generate(
                        prompt, max_tokens=tokens, drafter="none", temperature=1.0, seed=SEED + index, **settings
                    )
                shares.append(statistics.mean(drawn) / statistics.median(scored))
                draws += drawn
                passes += scored
            share = statistics.mean(draws) / statistics.median(passes)
            what = ", ".join(f"{key} {value}" for key, value in settings.items())
            figure = f"{100 * share:.2f} % of a pass: {statistics.mean(draws) * 1e6:.0f} us, {len(draws)} draws"
            yield Outcome(f"{name}, {what}", figure, f"at most {100 * LIMIT:.0f} %", share <= LIMIT,
                          f"{100 * min(shares):.2f} to {100 * max(shares):.2f} % by prompt")  # fmt: skip


LINES = [("sampler", "a drawn token at temperature 1, on both models", sampler)]
