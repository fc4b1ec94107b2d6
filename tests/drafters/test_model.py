"""A model that drafts: its chain, and the runners-up that stand beside unsure guesses."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import TableTarget, plain, start
from outpace.confidence import OUT, largest_probability, without
from outpace.decode import generate
from outpace.drafters.model import ModelDrafter
from outpace.rules import RULES
from outpace.types import Budget

VOCAB = 8
PRICES = (0.02,) * 12
TREE = Budget(4, 12, 0.0, PRICES)


def unsure(path: tuple[int, ...]) -> list[float]:
    """Logits in which token 3 leads and 5 follows closely."""
    return [0.0, 0.0, 0.0, 2.0, 0.0, 1.9, 0.0, 0.0]


def sure(path: tuple[int, ...]) -> list[float]:
    return [0.0, 0.0, 0.0, 20.0, 0.0, 1.9, 0.0, 0.0]


def proposed(law, budget, **options):
    drafter = ModelDrafter(TableTarget(VOCAB, logits=law), VOCAB)
    one = start(TableTarget(VOCAB), (1, 2, 3), drafter, **options)
    return drafter.propose_many([(one.drafting, budget)])[0]


def test_the_runner_up_of_an_unsure_guess_stands_beside_it():
    draft = proposed(unsure, TREE)
    assert draft.tokens[:4] == (3, 3, 3, 3)
    assert draft.children(-1) == [0, 4]
    assert draft.tokens[4] == 5
    assert set(draft.tokens[4:]) == {5}
    assert list(draft.parents[4:]) == list(range(-1, len(draft) - 5))


def test_a_sure_guess_stands_alone():
    assert proposed(sure, TREE).tokens == (3, 3, 3, 3)


@pytest.mark.parametrize(
    "budget", [Budget.chain(4), Budget(4, 12, 0.0, PRICES, chains=True), Budget(4, 12, 0.0, (0.9,) * 12)],
    ids=["no prices", "chains", "dear rows"],
)  # fmt: skip
def test_there_are_none_where_rows_are_dear_or_drafts_are_chains(budget):
    assert proposed(unsure, budget).tokens == (3, 3, 3, 3)


def test_no_more_nodes_than_have_a_price():
    assert len(proposed(unsure, Budget(4, 5, 0.0, PRICES[:5]))) == 5


def test_with_noise_in_common_the_runner_up_is_the_second_of_the_race():
    model = TableTarget(VOCAB, logits=unsure)
    drafter = ModelDrafter(model, VOCAB)
    one = start(TableTarget(VOCAB), (1, 2, 3), drafter, temperature=1.0, seed=4)
    [draft] = drafter.propose_many([(one.drafting, TREE)])
    [first, second] = draft.children(-1)
    row = np.array(unsure(()), np.float32)
    assert one.laws.after(row, one.committed, ()).draw() == draft.tokens[first]
    row[draft.tokens[first]] = OUT
    assert one.laws.after(row, one.committed, ()).draw() == draft.tokens[second]


def test_nothing_stands_beside_a_draw_with_noise_of_its_own():
    assert proposed(unsure, TREE, temperature=1.0, rule="rejection").is_chain


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.lossless])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_the_plain_one_with_runners_up(rule, temperature):
    if temperature and not RULES[rule].shares_noise:
        pytest.skip("such a rule has texts of its own")
    target = TableTarget(VOCAB)
    for draft in (TableTarget(VOCAB, order=1, spread=0.5), TableTarget(VOCAB, spread=0.2, seed=3), target):
        drafter = ModelDrafter(draft, VOCAB)
        one = start(target, (1, 2, 3), drafter, rule=rule, temperature=temperature, max_tokens=60)
        one.controller.budget = lambda load, chains=not RULES[rule].verifies_trees: Budget(
            4, 12, 0.05, PRICES, chains
        )
        steps = list(generate(one, target, drafter))
        assert one.fault is None
        assert one.committed == plain(target, (1, 2, 3), temperature=temperature, max_tokens=60)
        branched = [step for step in steps if not step.draft.is_chain]
        assert bool(branched) == RULES[rule].verifies_trees or draft is target


@pytest.mark.parametrize("missing", [0, 5])
def test_the_largest_probability_is_the_softmax_s(missing):
    row = np.random.default_rng(0).normal(0, 3, 1003).astype(np.float32)
    row[7 : 7 + missing] = -np.inf
    exact = np.exp(row.astype(np.float64) - row.max())
    assert largest_probability(row) == pytest.approx(exact.max() / exact.sum(), rel=1e-5)
    assert largest_probability(row.astype(np.float64)) == pytest.approx(exact.max() / exact.sum(), rel=1e-9)


@pytest.mark.parametrize("writeable", [True, False])
def test_a_row_without_a_token_is_whole_again(writeable):
    row = np.arange(5, dtype=np.float32)
    row.flags.writeable = writeable
    with without(row, 4) as rest:
        assert rest.argmax() == 3
    assert row.tolist() == [0, 1, 2, 3, 4]


def test_a_row_of_torch_that_is_made_for_inference():
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        row = torch.arange(5.0)
    with without(row, 4) as rest:
        assert int(rest.argmax()) == 3
    assert row.tolist() == [0, 1, 2, 3, 4]
    assert largest_probability(row) == pytest.approx(float(row.softmax(0)[4]), rel=1e-6)
