"""The formulas against the real loop and the real rules, on targets with known laws; fixed seeds, stated counts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from fakes import FakeDrafter, TableTarget, run
from outpace.drafters.model import ModelDrafter
from outpace.theory import agreement, speedup
from outpace.types import Budget, Draft, Step

TOKENS = 3000
P, Q = [0.40, 0.25, 0.15, 0.10, 0.07, 0.03], [0.20, 0.30, 0.05, 0.25, 0.05, 0.15]


def committed(steps: list[Step]) -> np.ndarray:
    """[n] tokens of each step but the last, which the length limit cuts."""
    return np.array([len(step.tokens) for step in steps[:-1]], dtype=float)


def agrees(tokens: np.ndarray, expected: float) -> bool:
    """True within four standard errors of the mean."""
    return bool(abs(tokens.mean() - expected) <= 4 * tokens.std() / len(tokens) ** 0.5)


def right_with(alpha: float, target: TableTarget, seed: int) -> FakeDrafter:
    """Returns a drafter that guesses the target's greedy token with probability alpha, and another one otherwise."""
    rng = Random(seed)

    def drafts(tokens: list[int], budget: Budget) -> Draft:
        path, guesses = list(tokens), []
        for _ in range(budget.depth):
            right = int(target.logits(path).argmax())
            guesses.append(right if rng.random() < alpha else (right + 1) % target.vocab_size)
            path.append(right)
        return Draft.chain(guesses)

    return FakeDrafter("right-with", target.vocab_size, drafts)


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_a_scripted_drafter_commits_equation_1(alpha: float, gamma: int) -> None:
    target = TableTarget()
    _, steps = run(target, (1, 2, 3), right_with(alpha, target, 21), draft_length=gamma, max_tokens=TOKENS)
    assert agrees(committed(steps), speedup.tokens_per_step(alpha, gamma))


@pytest.mark.parametrize(
    ("rule", "acceptance"),
    [("rejection", agreement.overlap), ("coupled", agreement.coupled_acceptance)],
)
def test_a_sampling_drafter_is_accepted_as_the_laws_say(rule: str, acceptance: Callable[..., float]) -> None:
    target = TableTarget(logits=lambda path: np.log(P))
    draft = TableTarget(logits=lambda path: np.log(Q))
    drafter = ModelDrafter(draft, target.vocab_size)
    _, steps = run(target, (1, 2), drafter, rule=rule, temperature=1.0, draft_length=3, max_tokens=TOKENS)
    assert agrees(committed(steps), speedup.tokens_per_step(acceptance(P, Q), 3))
