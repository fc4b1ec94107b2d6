from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.rules import residual
from outpace.theory import agreement

Law = npt.NDArray[np.float64]


@st.composite
def laws(draw: st.DrawFn) -> tuple[Law, Law]:
    """Two laws over 1 to 7 tokens, with zeros."""
    size = draw(st.integers(1, 7))
    weights = st.lists(st.sampled_from([0.0, 0.01, 1.0, 2.0, 5.0]), min_size=size, max_size=size).filter(any)
    p, q = np.array(draw(weights)), np.array(draw(weights))
    return p / p.sum(), q / q.sum()


def coupled_by_definition(p: Law, q: Law) -> float:
    """sum_v 1 / sum_w max(p_w / p_v, q_w / q_v), term by term."""
    shared = [v for v in range(p.size) if p[v] > 0 and q[v] > 0]
    return sum(1.0 / sum(max(p[w] / p[v], q[w] / q[v]) for w in range(p.size)) for v in shared)


@given(laws())
def test_overlap_is_one_less_the_distance(pair: tuple[Law, Law]) -> None:
    assert agreement.overlap(*pair) == pytest.approx(1.0 - agreement.total_variation(*pair))


@given(laws())
def test_coupled_equals_its_definition_and_lies_between_its_bounds(pair: tuple[Law, Law]) -> None:
    coupled, distance = agreement.coupled_acceptance(*pair), agreement.total_variation(*pair)
    assert coupled == pytest.approx(coupled_by_definition(*pair), abs=1e-12)
    assert (1 - distance) / (1 + distance) - 1e-9 <= coupled <= 1 - distance + 1e-9


@given(laws())
def test_independent_draws_agree_least(pair: tuple[Law, Law]) -> None:
    assert agreement.independent_acceptance(*pair) <= agreement.coupled_acceptance(*pair) + 1e-12


@given(laws())
def test_a_law_agrees_with_itself(pair: tuple[Law, Law]) -> None:
    assert agreement.overlap(pair[0], pair[0]) == pytest.approx(1.0)
    assert agreement.coupled_acceptance(pair[0], pair[0]) == pytest.approx(1.0)


@given(laws())
def test_lenience_one_is_overlap_and_less_is_more(pair: tuple[Law, Law]) -> None:
    assert agreement.lenient_acceptance(*pair, 1.0) == pytest.approx(agreement.overlap(*pair))
    assert agreement.lenient_acceptance(*pair, 0.5) >= agreement.lenient_acceptance(*pair, 0.9) - 1e-12


@given(laws())
def test_overlap_and_residual_add_up_to_the_target(pair: tuple[Law, Law]) -> None:
    p, q = pair
    rejected = 1.0 - agreement.overlap(p, q)
    assert np.minimum(p, q) + rejected * residual(p, q) == pytest.approx(p)


@pytest.mark.parametrize("seed", range(3))
def test_coupled_is_how_often_shared_gumbel_noise_agrees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(6, 0.5)), rng.dirichlet(np.full(6, 0.5))
    n = 200_000
    noise = rng.gumbel(size=(n, 6))
    agreed = ((np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)).mean()
    exact = agreement.coupled_acceptance(p, q)
    assert agreed == pytest.approx(exact, abs=4 * (exact * (1 - exact) / n) ** 0.5)


def test_point_mass_draft_is_accepted_as_often_as_the_target_draws_it() -> None:
    p, q = [0.5, 0.3, 0.2], [0.0, 1.0, 0.0]
    measures = (agreement.overlap, agreement.coupled_acceptance, agreement.independent_acceptance)
    assert [measure(p, q) for measure in measures] == pytest.approx([0.3, 0.3, 0.3])


def test_laws_without_a_common_token_never_agree() -> None:
    assert agreement.overlap([1.0, 0.0], [0.0, 1.0]) == 0.0
    assert agreement.coupled_acceptance([1.0, 0.0], [0.0, 1.0]) == 0.0
    assert residual(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx([1.0, 0.0])


def test_a_large_single_precision_vocabulary_is_accurate() -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(0.0, 4.0, (2, 151_936)).astype(np.float32)
    p, q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True, dtype=np.float32)
    coupled, distance = agreement.coupled_acceptance(p, q), agreement.total_variation(p, q)
    assert (1 - distance) / (1 + distance) < coupled < 1 - distance


def test_denormal_probabilities_are_no_fault() -> None:
    p, q = [1.0, 1e-310, 0.5e-310], [1e-310, 1.0, 1e-320]
    assert agreement.coupled_acceptance(p, q) == pytest.approx(0.0, abs=1e-300)
    assert agreement.lenient_acceptance(p, q, 1e-320) == pytest.approx(1.0)
    assert agreement.accepted_by_block_verification(lambda prefix: (p, q), 2) == pytest.approx(0.0, abs=1e-300)


def block_by_enumeration(table: dict[tuple[int, ...], tuple[Law, Law]], gamma: int) -> float:
    """Expected accepted tokens from the rule itself: the largest i whose own test passes (Sun et al., section 4)."""
    expected = 0.0
    vocabulary = range(table[()][0].size)
    for draft in product(vocabulary, repeat=gamma):
        drawn, alive, passes = 1.0, 1.0, []
        for i, token in enumerate(draft):
            p, q = table[draft[:i]]
            drawn *= q[token]
            if drawn == 0.0:
                break
            alive = min(1.0, alive * p[token] / q[token])
            if i == gamma - 1:
                passes.append(alive)
            else:
                p_next, q_next = table[draft[: i + 1]]
                gain = np.maximum(alive * p_next - q_next, 0.0).sum()
                passes.append(gain / (gain + 1 - alive) if gain + 1 - alive > 0 else 1.0)
        if drawn > 0.0:
            none_later = 1.0
            for i in range(gamma, 0, -1):
                expected += drawn * none_later * passes[i - 1] * i
                none_later *= 1 - passes[i - 1]
    return expected


@pytest.mark.parametrize("seed", range(5))
def test_block_verification_formula_is_the_rule_enumerated(seed: int) -> None:
    rng, gamma, size = np.random.default_rng(seed), 3, 3
    table = {
        prefix: (rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size)))
        for length in range(gamma + 1)
        for prefix in product(range(size), repeat=length)
    }
    block = agreement.accepted_by_block_verification(table.__getitem__, gamma)
    assert block == pytest.approx(block_by_enumeration(table, gamma))
    assert block >= agreement.accepted_by_token_verification(table.__getitem__, gamma)


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        ([0.5, 0.5], [1.0], "must cover one vocabulary, got 2 and 1 tokens"),
        ([2.0, 1.0], [0.5, 0.5], "target_probs must be non-negative and sum to 1, got minimum 1 and sum 3"),
        ([0.5, 0.5], [1.5, -0.5], "draft_probs must be non-negative"),
        ([float("nan"), 1.0], [0.5, 0.5], "target_probs must be non-negative"),
        ([[1.0]], [[1.0]], r"must be one law \[V\]"),
        ([], [], r"must be one law \[V\]"),
    ],
)
def test_bad_laws_are_refused(p: list[float], q: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        agreement.overlap(p, q)


@pytest.mark.parametrize("lenience", [0.0, -1.0, 1.1, float("nan")])
def test_lenience_out_of_range_is_refused(lenience: float) -> None:
    with pytest.raises(UsageError, match=r"lenience must be in \(0, 1\]"):
        agreement.lenient_acceptance([1.0], [1.0], lenience)
