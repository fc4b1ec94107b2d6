"""Penalties, bias and masks: by hand, out of range, and the quick processor against the readable one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.processors import Adjuster, Adjustments, Before, adjusted
from outpace.sampling import Sampler, SamplingParams
from outpace.types import Draft, Scores

INF = math.inf
PROMPT, OUTPUT = (0, 1), (1, 2, 2)
ROW = (4.0, -4.0, 1.0, 0.0, -1.0, 2.0)


def after(**wanted: object) -> list[float]:
    row = np.array(ROW, dtype=np.float32)
    new = Adjuster(Adjustments(**wanted), len(PROMPT))(row, Before(PROMPT + OUTPUT))
    assert row.tolist() == list(ROW), "the row belongs to the target"
    assert new.tobytes() == adjusted(row, PROMPT + OUTPUT, len(PROMPT), Adjustments(**wanted)).tobytes()
    return new.tolist()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ROW),
        ({"repetition_penalty": 2.0}, (2, -8, 0.5, 0, -1, 2)),
        ({"repetition_penalty": 0.5}, (8, -2, 2, 0, -1, 2)),
        ({"presence_penalty": 1.5}, (4, -5.5, -0.5, 0, -1, 2)),
        ({"presence_penalty": -1.5}, (4, -2.5, 2.5, 0, -1, 2)),
        ({"frequency_penalty": 1.5}, (4, -5.5, -2, 0, -1, 2)),
        ({"logit_bias": {3: 100.0, 5: -2.5}}, (4, -4, 1, 100, -1, -0.5)),
        ({"banned": frozenset({0, 5})}, (-INF, -4, 1, 0, -1, -INF)),
        ({"allowed": frozenset({0, 5})}, (4, -INF, -INF, -INF, -INF, 2)),
        ({"min_tokens": 4, "withheld": frozenset({5})}, (4, -4, 1, 0, -1, -INF)),
        ({"min_tokens": 3, "withheld": frozenset({5})}, ROW),
        # All at once, in the stated order: 1 / 2 - 2 * 0.25 - 0.5 + 3, and masks that no bias lifts.
        (
            {
                "repetition_penalty": 2.0,
                "frequency_penalty": 0.25,
                "presence_penalty": 0.5,
                "logit_bias": {2: 3.0, 0: 100.0},
                "banned": frozenset({0}),
                "allowed": frozenset({0, 1, 2}),
            },
            (-INF, -8.75, 2.5, -INF, -INF, -INF),
        ),
    ],
)
def test_each_step_does_what_its_formula_says(wanted: dict[str, object], expected: tuple[float, ...]) -> None:
    assert after(**wanted) == list(expected)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"repetition_penalty": 0.0}, r"repetition_penalty must be in \[0.01, 100\] \(1 = off\), got 0.0"),
        ({"repetition_penalty": math.nan}, "repetition_penalty must be in .* got nan"),
        ({"presence_penalty": 2.1}, r"presence_penalty must be in \[-2, 2\] \(0 = off\), got 2.1"),
        ({"frequency_penalty": -INF}, r"frequency_penalty must be in \[-2, 2\] \(0 = off\), got -inf"),
        ({"logit_bias": {3: -INF}}, r"logit_bias must be in \[-100, 100\], got -inf for token 3; banned forbids"),
        ({"logit_bias": {6: 1.0}}, r"logit_bias must hold token ids in \[0, 6\), got 6"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias must hold token ids in .* got 'a'"),
        ({"banned": frozenset({-1})}, r"banned must hold token ids in \[0, 6\), got -1"),
        ({"allowed": frozenset({1.5})}, "allowed must hold token ids in .* got 1.5"),
        ({"allowed": frozenset()}, "every token is banned: allow one"),
        ({"allowed": frozenset({1}), "banned": frozenset({1})}, "every token is banned: allow one"),
        ({"banned": frozenset(range(6))}, "every token is banned: allow one"),
        ({"min_tokens": -1}, "min_tokens must be at least 0, got -1"),
        ({"min_tokens": 1, "withheld": frozenset({1}), "allowed": frozenset({1})}, "only tokens that end the text"),
    ],
)
def test_values_out_of_range_are_refused(wanted: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Adjustments(**wanted).check(6)


def random_wanted(chance: np.random.Generator, vocab: int) -> Adjustments:
    def ids(most: int) -> frozenset[int]:
        return frozenset(chance.integers(vocab, size=chance.integers(most + 1)).tolist())

    return Adjustments(
        repetition_penalty=float(chance.choice([1, 1, 0.01, 0.7, 1.1, 3, 100])),
        presence_penalty=float(chance.choice([0, 0, -2, 0.3, 2])),
        frequency_penalty=float(chance.choice([0, 0, -2, 0.1, 2])),
        logit_bias={token: float(chance.uniform(-100, 100)) for token in ids(3)},
        banned=ids(2),
        allowed=ids(20) if chance.random() < 0.3 else None,
        min_tokens=int(chance.integers(8)),
        withheld=ids(2),
    )


@pytest.mark.parametrize("seed", range(100))
def test_the_quick_processor_equals_the_readable_one_whatever_was_drafted(seed: int) -> None:
    """One processor, a target's list and a drafter's, rows of rejected paths between those of the committed text."""
    chance = np.random.default_rng(seed)
    vocab, prompt = 40, chance.integers(40, size=chance.integers(1, 90)).tolist()
    wanted = random_wanted(chance, vocab)
    processor, lists = Adjuster(wanted, len(prompt)), (list(prompt), list(prompt))
    for _ in range(12):
        for committed in lists:
            for _ in range(3):
                path = chance.integers(vocab, size=chance.integers(5)).tolist()
                row = (chance.choice([1, 10, 1e38]) * chance.normal(size=vocab)).clip(-3e38, 3e38).astype(np.float32)
                row[chance.integers(vocab)] = chance.choice([0.0, -0.0, INF, -INF])
                expected = adjusted(row, [*committed, *path], len(prompt), wanted)
                assert processor(row, Before(committed, path)).tobytes() == expected.tobytes()
        new = chance.integers(vocab, size=chance.integers(1, 4)).tolist()
        for committed in lists:
            committed += new


def test_a_list_that_is_shortened_or_rewritten_is_counted_anew() -> None:
    wanted, row = Adjustments(frequency_penalty=1.0), np.zeros(6, dtype=np.float32)
    processor, committed = Adjuster(wanted, 1), [0, 1, 1, 2]
    early = Before(committed[:2])
    assert processor(row, Before(committed)).tolist() == [0, -2, -1, 0, 0, 0]
    committed[3:] = [5]
    assert processor(row, Before(committed)).tolist() == [0, -2, 0, 0, 0, -1]
    del committed[2:]
    assert processor(row, Before(committed)).tolist() == [0, -1, 0, 0, 0, 0]
    assert processor(row, early).tolist() == [0, -1, 0, 0, 0, 0]


def test_what_comes_before_a_row_stays_what_it_was_when_the_list_grows() -> None:
    committed = [1, 2]
    before = Before(committed, [3])
    committed.append(9)
    assert (list(before), len(before), before[-1], before[1:]) == ([1, 2, 3], 3, 3, (2, 3))


def test_a_nodes_siblings_and_cousins_do_not_count() -> None:
    sampler = Sampler(SamplingParams(0), 1, processors=[Adjuster(Adjustments(presence_penalty=1.0), 1)])
    draft = Draft((1, 2, 1), (-1, -1, 1), (None,) * 3)
    laws = sampler(Scores(np.array([[0, 0.9, 0.5]] * 4, dtype=np.float32)), [0], draft)
    assert [law.draw() for law in laws] == [1, 2, 1, 0]


def test_a_masked_token_has_probability_exactly_zero() -> None:
    wanted = Adjustments(
        banned=frozenset({1}), min_tokens=1, withheld=frozenset({2}), logit_bias={1: 100.0, 2: 100.0}
    )
    sampler = Sampler(SamplingParams(5.0), 1, processors=[Adjuster(wanted, 1)])
    law = sampler.after(np.array([-50, 50, 50, 0], dtype=np.float32), [0], ())
    assert law.probs()[[1, 2]].tolist() == [0, 0]
    assert law.probs().sum() == pytest.approx(1)


def test_rows_that_nobody_asks_for_are_not_processed() -> None:
    rows = []
    sampler = Sampler(SamplingParams(), 1, processors=[lambda row, before: rows.append(list(before)) or row.copy()])
    laws = sampler(Scores(np.zeros((3, 5), dtype=np.float32)), [0], Draft.chain([1, 2]))
    laws[1].draw()
    laws[1].probs()
    assert rows == [[0, 1]] * 2


def test_a_drafters_own_law_outlives_the_row_it_was_made_from() -> None:
    sampler = Sampler(SamplingParams(), 1, shares_noise=False, processors=[Adjuster(Adjustments(banned={1}), 1)])
    logits = np.arange(4, dtype=np.float32)
    law = sampler.after(logits, [0], ())
    logits[:] = 0
    assert law.probs()[3] > law.probs()[2] > law.probs()[1] == 0
