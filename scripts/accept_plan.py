"""Plan, tune, bench: what is predicted is what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from acceptance import Outcome
from first_light.common import DRAFT, EMBEDDED, TARGET, load, per_task

from outpace.bench.tuning import tune

OFF, DOUBT = 0.10, 0.05


def predictions(
    name: str, draft: str | None, prompts: list[tuple[str, str]], drafter: str, tokens: int = 96, repeats: int = 3
) -> Iterator[Outcome]:
    """Every setting: predicted against measured speed-up, and whether both say the same of paying."""
    asked = [prompt for _, prompt in prompts]
    found = tune(load(name, draft), asked, drafters=(drafter,), max_tokens=tokens, repeats=repeats, seconds=4.0)
    within = 0
    for setting in found.settings:
        measured, error = setting.measured, setting.error
        assert measured is not None
        assert error is not None
        right = abs(measured.value - 1) <= DOUBT or (setting.predicted > 1) == (measured.value > 1)
        within += abs(error) <= OFF
        figure = f"predicted {setting.predicted:.2f}, measured {measured.value:.2f}, off by {100 * error:+.0f} %"
        yield Outcome(f"{name}, {drafter} of {setting.draft_length}", figure,
                      "sign right outside 5 % of 1", right, f"{measured.low:.2f} to {measured.high:.2f}")  # fmt: skip
    yield Outcome(f"{name}, {drafter}: settings within 10 %", f"{within} of {len(found.settings)}", "at least 5",
                  within >= 5)  # fmt: skip


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("predicted", "embedded model, n-grams: predicted and measured speed-up",
     lambda: predictions(EMBEDDED, None, per_task(2), "ngram")),
    ("pair-predicted", "the 0.5B for the 1.5B: predicted and measured speed-up",
     lambda: predictions(TARGET, DRAFT, per_task(1)[:4], "model", tokens=48, repeats=2)),
    ("pair-code", "1.5B, n-grams on code: predicted and measured speed-up",
     lambda: predictions(TARGET, None, per_task(4, "humaneval_prompts.jsonl"), "ngram", tokens=64, repeats=2)),
]  # fmt: skip
