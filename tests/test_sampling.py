"""The plain sampler: parameters, filters in one order, ties, keys, and the law of its draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.sampling import MAX_VOCAB, Reference, Sampler, SamplingParams, sampler_core
from outpace.types import EMPTY, Draft, Scores

NAN, INF = math.nan, math.inf


def row(*logits: float) -> np.ndarray:
    return np.array(logits, dtype=np.float32)


def probs(params: SamplingParams, logits: np.ndarray) -> np.ndarray:
    return sampler_core(params, 1, 0).probs(logits)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -0.1, "temperature must be finite and at least 0, got -0.1"),
        ("temperature", INF, "temperature must be finite and at least 0, got inf"),
        ("temperature", NAN, "temperature must be finite and at least 0, got nan"),
        ("top_k", -1, r"top_k must be in \[0, 2147483647\] \(0 = off\), got -1"),
        ("top_k", 1 << 31, r"top_k must be in \[0, 2147483647\] \(0 = off\), got 2147483648"),
        ("top_p", 0.0, r"top_p must be in \(0, 1\], got 0.0"),
        ("top_p", 1.3, r"top_p must be in \(0, 1\], got 1.3"),
        ("top_p", NAN, r"top_p must be in \(0, 1\], got nan"),
        ("min_p", 1.0, r"min_p must be in \[0, 1\), got 1.0"),
        ("seed", 1 << 64, "seed must be a 64-bit integer, got 18446744073709551616"),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SamplingParams(**{field: value})


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(temperature=5e-324),
        SamplingParams(temperature=1e-9),
        SamplingParams(temperature=1e-6),
        SamplingParams(top_k=1),
        SamplingParams(temperature=1.5, top_p=1e-9),
    ],
)
def test_greedy_in_all_its_forms_takes_the_lowest_of_the_largest(params: SamplingParams) -> None:
    core = sampler_core(params, 1, 0)
    assert {core.draw(row(1, 3, -INF, 3, 2), 0, place, 0) for place in range(50)} == {1}
    assert probs(params, row(1, 3, -INF, 3, 2)).tolist() == [0, 1, 0, 0, 0]


def test_the_default_is_the_softmax() -> None:
    logits = np.random.default_rng(1).normal(size=100).astype(np.float32)
    exact = np.exp(logits.astype(np.float64))
    assert np.allclose(probs(SamplingParams(), logits), exact / exact.sum(), rtol=1e-12)


def test_temperature_comes_before_the_filters() -> None:
    logits = np.log(row(0.5, 0.3, 0.2))
    flat = np.array([0.5, 0.3, 0.2]) ** 0.5
    assert np.allclose(probs(SamplingParams(temperature=2), logits), flat / flat.sum(), rtol=1e-6)
    # 0.5 alone reaches 0.45, its square root's share of 0.42 does not.
    assert np.count_nonzero(probs(SamplingParams(top_p=0.45), logits)) == 1
    assert np.count_nonzero(probs(SamplingParams(temperature=2, top_p=0.45), logits)) == 2


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    logits = np.log(row(0.4, 0.3, 0.2, 0.1))
    # Of 0.4 and 0.3, the first has 0.57.
    assert np.count_nonzero(probs(SamplingParams(top_p=0.55), logits)) == 2
    assert np.count_nonzero(probs(SamplingParams(top_k=2, top_p=0.55), logits)) == 1


def test_min_p_is_a_share_of_the_likeliest() -> None:
    logits = np.log(row(0.4, 0.3, 0.2, 0.1))
    assert np.flatnonzero(probs(SamplingParams(min_p=0.6), logits)).tolist() == [0, 1]


def test_ties_at_the_edge_of_a_filter_go_to_the_lowest_ids() -> None:
    logits = row(0, 1, 0, 1, 0, 1)
    assert np.flatnonzero(probs(SamplingParams(top_k=2), logits)).tolist() == [1, 3]
    assert np.flatnonzero(probs(SamplingParams(top_k=4), logits)).tolist() == [0, 1, 3, 5]
    assert np.flatnonzero(probs(SamplingParams(top_p=0.4), logits)).tolist() == [1, 3]
    assert np.flatnonzero(probs(SamplingParams(top_k=2), row(0.0, -0.0, 0.0))).tolist() == [0, 1]


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    chance = np.random.default_rng(5)
    for top_p in (0.1, 0.5, 0.9, 0.999):
        logits = (3 * chance.normal(size=1000)).astype(np.float32)
        p = probs(SamplingParams(), logits)
        kept = np.flatnonzero(probs(SamplingParams(top_p=top_p), logits))
        assert p[kept].sum() >= top_p - 1e-12
        assert p[kept].sum() - p[kept].min() < top_p + 1e-12
        assert p[kept].min() >= np.delete(p, kept).max()


def test_minus_infinity_is_never_drawn_and_plus_infinity_shares_everything() -> None:
    assert probs(SamplingParams(), row(-INF, 0, 0, -INF)).tolist() == [0, 0.5, 0.5, 0]
    assert probs(SamplingParams(), row(5, INF, -INF, INF)).tolist() == [0, 0.5, 0, 0.5]
    core = sampler_core(SamplingParams(), 1, 0)
    assert {core.draw(row(5, INF, -INF, INF), 0, place, 0) for place in range(50)} == {1, 3}


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (row(1, NAN, 2), "logits must not be NaN, got NaN for token 1"),
        (row(-INF, -INF), "every token is banned: all logits are -inf"),
        (row(), f"a row of logits must have 1 to {MAX_VOCAB} entries"),
        (np.zeros(MAX_VOCAB + 1, dtype=np.float32), f"a row of logits must have 1 to {MAX_VOCAB} entries"),
    ],
)
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0), SamplingParams(top_p=0.9)])
def test_rows_without_a_law_are_refused(logits: np.ndarray, message: str, params: SamplingParams) -> None:
    for core in (sampler_core(params, 1, 0), Reference(params, 1, 0)):
        with pytest.raises(UsageError, match=message):
            core.draw(logits, 0, 0, 0)
        with pytest.raises(UsageError, match=message):
            core.probs(logits)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.5),
        SamplingParams(top_k=7),
        SamplingParams(top_p=0.8),
        SamplingParams(temperature=1.3, top_k=20, top_p=0.9, min_p=0.05),
    ],
)
def test_draws_have_the_law_that_probs_states(params: SamplingParams) -> None:
    """Pearson's chi-square of 40,000 draws over 30 tokens, at its 0.1 % point.

    Power: a law off by 2 % in total variation, spread over the tokens, is found with more than 99 %.
    """
    logits = (2 * np.random.default_rng(7).normal(size=30)).astype(np.float32)
    core = sampler_core(params, 11, 0)
    law = core.probs(logits)
    counts = np.bincount([core.draw(logits, 0, place, 0) for place in range(40_000)], minlength=30)
    kept = law > 0
    assert counts[~kept].sum() == 0
    degrees = int(kept.sum()) - 1
    statistic = ((counts - 40_000 * law)[kept] ** 2 / (40_000 * law[kept])).sum()
    # Wilson and Hilferty's approximation of the quantile.
    assert statistic < degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3


# -- laws of a round -------------------------------------------------------------------------------------------------


def logits_after(tokens: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng([9, *tokens]).normal(size=50).astype(np.float32)


def scores_of(committed: tuple[int, ...], draft: Draft) -> Scores:
    paths = [committed + tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(-1, len(draft))]
    return Scores(np.stack([logits_after(path) for path in paths]))


def test_a_draw_depends_on_its_position_alone() -> None:
    sampler = Sampler(SamplingParams(), 3)
    committed = (1, 2, 3)
    chain, tree = Draft.chain([4, 5]), Draft((9, 4, 5, 8), (-1, -1, 1, 2), (None,) * 4)
    draws = sampler.draw_all(scores_of(committed, chain), committed, chain)
    assert draws == [
        sampler(scores_of(path, EMPTY), path, EMPTY)[0].draw() for path in ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5))
    ]
    in_tree = sampler.draw_all(scores_of(committed, tree), committed, tree)
    assert [in_tree[0], in_tree[2], in_tree[3]] == draws
    assert draws[1] == sampler.after(logits_after((1, 2, 3, 4)), committed, (4,)).draw()


def test_a_drafter_with_its_own_noise_draws_afresh_in_every_round() -> None:
    sampler = Sampler(SamplingParams(), 3, shares_noise=False)
    logits = np.zeros(5000, dtype=np.float32)
    draws = [sampler.after(logits, (0,) * n, (0,) * k).draw() for n in range(1, 4) for k in range(3)]
    assert len(set(draws)) == len(draws)
    assert draws[0] != Sampler(SamplingParams(), 3).after(logits, (0,), ()).draw()


def test_a_draft_law_outlives_the_row_it_was_made_from() -> None:
    logits = logits_after((1,))
    law = Sampler(SamplingParams(), 3, shares_noise=False).after(logits, (1,), ())
    before = law.probs()
    logits[:] = 0
    assert np.array_equal(law.probs(), before)


def test_choices_of_one_seed_differ() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    assert len({Sampler(SamplingParams(), 3, choice).after(logits, (1,), ()).draw() for choice in range(5)}) == 5


def test_processors_see_the_nodes_own_path() -> None:
    def ban_seen(logits: np.ndarray, before: tuple[int, ...]) -> np.ndarray:
        logits = logits.copy()
        logits[list(before)] = -INF
        return logits

    sampler = Sampler(SamplingParams(), 3, processors=[ban_seen])
    draft = Draft((4, 5), (-1, -1), (None, None))
    laws = sampler(Scores(np.zeros((3, 10), dtype=np.float32)), (1, 2), draft)
    assert [np.flatnonzero(law.probs() == 0).tolist() for law in laws] == [[1, 2], [1, 2, 4], [1, 2, 5]]
