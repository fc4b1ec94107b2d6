"""The formulas against a simulated loop: fixed seeds, n steps, agreement within four standard errors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from outpace.rules import residual
from outpace.theory import agreement, costs, speedup, trees

STEPS = 20_000


def agrees(tokens: npt.NDArray[np.float64], expected: float) -> bool:
    """True when the mean of the steps' tokens is within four standard errors (one false alarm in 16,000)."""
    return bool(abs(tokens.mean() - expected) <= 4.0 * tokens.std() / len(tokens) ** 0.5 + 1e-12)


def accepted(successes: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """[n] tokens before the first failure of each row of [n, gamma]."""
    return np.asarray(np.cumprod(successes, axis=1).sum(axis=1), dtype=np.float64)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 0.97, 1.0])
@pytest.mark.parametrize("gamma", [1, 4, 12])
def test_tokens_of_a_step_with_independent_acceptance(alpha: float, gamma: int) -> None:
    rng = np.random.default_rng(11)
    tokens = 1.0 + accepted(rng.random((STEPS, gamma)) < alpha)
    assert agrees(tokens, speedup.tokens_per_step(alpha, gamma))


def test_tokens_of_a_step_in_easy_and_hard_contexts() -> None:
    # Acceptance 0.95 in one half of the contexts and 0.3 in the other, for the whole draft.
    rng, gamma = np.random.default_rng(12), 5
    alphas = np.where(rng.random(STEPS) < 0.5, 0.95, 0.3)[:, None]
    successes = rng.random((STEPS, gamma)) < alphas
    counts = np.cumprod(successes, axis=1).sum(axis=0)
    tested = np.concatenate([[STEPS], counts[:-1]])
    conditionals = costs.conditional_acceptances(counts.tolist(), tested.tolist())
    exact = 0.5 * (speedup.tokens_per_step(0.95, gamma) + speedup.tokens_per_step(0.3, gamma))
    assert (1.0 + accepted(successes)).mean() == pytest.approx(speedup.tokens_per_step_by_position(conditionals))
    assert agrees(1.0 + accepted(successes), exact)
    assert costs.independence_error(counts.tolist(), tested.tolist()) > 0.02


def test_the_rejection_rule_accepts_the_overlap_and_emits_the_target() -> None:
    rng, gamma, size = np.random.default_rng(13), 3, 5
    p, q = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    beta = agreement.overlap(p, q)
    drafts = rng.choice(size, size=(STEPS, gamma), p=q)
    successes = rng.random((STEPS, gamma)) * q[drafts] < p[drafts]
    assert agrees(1.0 + accepted(successes), speedup.tokens_per_step(beta, gamma))

    corrections = rng.choice(size, size=STEPS, p=residual(p, q))
    first = np.where(successes[:, 0], drafts[:, 0], corrections)
    seen = np.bincount(first, minlength=size) / STEPS
    assert np.all(np.abs(seen - p) <= 4.0 * np.sqrt(p * (1 - p) / STEPS))


def test_the_coupled_rule_commits_its_exact_acceptance() -> None:
    rng, gamma, size = np.random.default_rng(14), 4, 6
    p, q = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    noise = rng.gumbel(size=(STEPS, gamma, size))
    successes = (np.log(p) + noise).argmax(2) == (np.log(q) + noise).argmax(2)
    assert agrees(1.0 + accepted(successes), speedup.tokens_per_step(agreement.coupled_acceptance(p, q), gamma))


def test_a_tree_commits_one_and_the_sum_of_its_paths() -> None:
    rng = np.random.default_rng(15)
    parents, conditionals = (-1, -1, 0, 0, 1, 2), (0.6, 0.25, 0.5, 0.3, 0.7, 0.8)
    tokens = np.ones(STEPS)
    for step in range(STEPS):
        node = -1
        while True:
            children = [child for child, parent in enumerate(parents) if parent == node]
            cut = rng.random()
            for child in children:
                if cut < conditionals[child]:
                    node = child
                    tokens[step] += 1
                    break
                cut -= conditionals[child]
            else:
                break
    assert agrees(tokens, trees.tokens_per_step(trees.path_probabilities(parents, conditionals)))


def test_the_clock_of_the_loop_agrees_with_the_predicted_speedup() -> None:
    rng, alpha, gamma = np.random.default_rng(16), 0.75, 4
    step = costs.StepCosts(costs.linear(1.0, 0.05), draft_seconds_per_token=0.08, overhead_seconds=0.02)
    tokens = 1.0 + accepted(rng.random((STEPS, gamma)) < alpha)
    seconds = STEPS * step.step_seconds(gamma)
    measured = tokens.sum() * step.plain_seconds / seconds
    predicted = costs.speedup(speedup.tokens_per_step(alpha, gamma), gamma, step)
    assert measured == pytest.approx(predicted, rel=4.0 * tokens.std() / tokens.mean() / STEPS**0.5)
