"""Every printed row that the theory is built on, within the rounding of what was printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from outpace.theory import agreement, costs, speedup

PAPERS: dict[str, Any] = json.loads((Path(__file__).parent / "papers.json").read_text())
LEVIATHAN = PAPERS["leviathan2023"]


def printed(value: float, digits: int) -> float:
    """Half a unit in the last printed place."""
    return 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), LEVIATHAN["table1"]["rows"])
def test_leviathan_table_1(alpha: float, gamma: int, operations: float, speed: float) -> None:
    assert speedup.operations_factor(alpha, gamma) == pytest.approx(operations, abs=printed(operations, 2))
    assert speedup.improvement(alpha, gamma, 0.0) == pytest.approx(speed, abs=printed(speed, 2))


@pytest.mark.parametrize("row", LEVIATHAN["table2"]["rows"], ids=lambda row: f"{row[0]}-{row[1]}-T{row[2]}")
def test_leviathan_table_2_within_the_rounding_of_its_inputs(row: list[Any]) -> None:
    *_, gamma, alpha, cost, expected, _ = row
    least = speedup.improvement(alpha - 0.005, gamma, cost + 0.005)
    most = speedup.improvement(alpha + 0.005, gamma, cost - 0.005)
    assert least - printed(expected, 1) <= expected <= most + printed(expected, 1)


@pytest.mark.parametrize(("target", "draft", "greedy", "sampled"), LEVIATHAN["table3_alpha"]["rows"])
def test_leviathan_table_3(target: str, draft: str, greedy: float, sampled: float) -> None:
    # The acceptance rates are measurements; the theory says what they allow, and Table 2 uses the same ones.
    for temperature, alpha in enumerate((greedy, sampled)):
        ceiling = speedup.ceiling(alpha)
        assert ceiling * (1 - alpha) == pytest.approx(1.0)
        assert 1 + alpha == pytest.approx(speedup.guaranteed_improvement(alpha, 0.0))
        assert speedup.guaranteed_improvement(alpha, 0.0) <= speedup.best_draft_length(alpha, 0.0).speedup <= ceiling
        for task, drafter, degrees, _, used, *_ in LEVIATHAN["table2"]["rows"]:
            if (f"t5-xxl-{task}", drafter, degrees) == (target, draft, temperature):
                assert used == alpha


@pytest.mark.parametrize("row", LEVIATHAN["table5_lenience_ende_T1"]["rows"], ids=lambda row: row[0])
def test_leviathan_table_5_has_the_shape_that_the_formula_demands(row: list[Any]) -> None:
    # sum min(p / l, q) rises with 1 / l, is concave in it, and is at most sum min(p, q) / l and 1.
    inverse, alphas = [1.0, 1 / 0.5, 1 / 0.3, 1 / 0.1], row[1:]
    assert alphas == sorted(alphas)
    assert all(alpha <= min(1.0, alphas[0] * x) + printed(alpha, 2) for x, alpha in zip(inverse, alphas, strict=True))
    slopes = [(alphas[i + 1] - alphas[i]) / (inverse[i + 1] - inverse[i]) for i in range(3)]
    rounding = [0.01 / (inverse[i + 1] - inverse[i]) for i in range(3)]
    assert all(slopes[i + 1] <= slopes[i] + rounding[i] + rounding[i + 1] for i in range(2))


@pytest.mark.parametrize(("benchmark", "sampling", "plain_ms", "speculative_ms", "ratio"), PAPERS["chen2023"]["rows"])
def test_chen_speedups_imply_a_possible_acceptance(
    benchmark: str, sampling: str, plain_ms: float, speculative_ms: float, ratio: float
) -> None:
    # The first printed ratio, 1.92, is 2.4 % above the ratio of the printed times; the others are exact.
    assert plain_ms / speculative_ms == pytest.approx(ratio, rel=0.025)
    gamma, cost = 4, PAPERS["chen2023"]["draft_ms_per_token"] / plain_ms
    tokens = (plain_ms / speculative_ms) * (gamma * cost + 1)
    alpha = speedup.acceptance_from_tokens_per_step(tokens, gamma)
    assert cost < alpha < 1.0
    assert speedup.improvement(alpha, gamma, cost) == pytest.approx(plain_ms / speculative_ms)
    step = costs.StepCosts(costs.flat(plain_ms / 1e3), PAPERS["chen2023"]["draft_ms_per_token"] / 1e3)
    assert costs.speedup(tokens, gamma, step) == pytest.approx(plain_ms / speculative_ms)


@pytest.mark.parametrize(("alpha", "gamma", "cost", "tokens", "ratio"), PAPERS["worked_examples"]["rows"])
def test_worked_examples(alpha: float, gamma: int, cost: float, tokens: float, ratio: float) -> None:
    assert speedup.tokens_per_step(alpha, gamma) == pytest.approx(tokens, abs=printed(tokens, 2))
    # 0.115 stands for 8.03 / 70.55 = 0.1138: a half unit of the printed cost either way.
    exact = speedup.improvement(alpha, gamma, cost)
    assert exact == pytest.approx(ratio, abs=printed(ratio, 2) + 4 * 0.0012 * exact * (cost == 0.115))


def test_worked_ceiling() -> None:
    example = PAPERS["worked_examples"]["ceiling"]
    assert speedup.ceiling(example["alpha"]) == pytest.approx(example["value"])


def test_block_verification_toy() -> None:
    toy = PAPERS["block_verification_toy"]

    def laws(prefix: tuple[int, ...]) -> tuple[list[float], list[float]]:
        return toy["p"], toy["q"]

    token = agreement.accepted_by_token_verification(laws, toy["gamma"])
    block = agreement.accepted_by_block_verification(laws, toy["gamma"])
    assert token == pytest.approx(toy["expected_accepted_token"])
    assert block == pytest.approx(toy["expected_accepted_block"])
    assert token == pytest.approx(speedup.tokens_per_step(agreement.overlap(toy["p"], toy["q"]), toy["gamma"]) - 1)
    assert math.isclose(block / token, 1.1)
