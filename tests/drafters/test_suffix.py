"""Suffix drafts: what mostly followed the same words, as a tree whose probabilities are what comes true."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest

from fakes import TableTarget, plain, run, start
from outpace.contexts import new_counts
from outpace.decode import generate
from outpace.drafters.suffix import SuffixDrafter, SuffixSession
from outpace.suffix_store import SuffixStore
from outpace.types import Budget, Draft, Scores, Step, Timing, Verdict

TREE = Budget(depth=8, nodes=12, min_path_probability=0.02)


def observe(one, proposed, tokens):
    one.observe(Step(proposed, Verdict((), tokens[-1]), tuple(tokens), None, Timing()), Scores(None))


def test_the_most_frequent_continuation_wins_over_the_latest():
    text = [1, 2, 7, 1, 2, 7, 1, 2, 8, 1, 2]
    assert SuffixSession(text, ()).propose(Budget.chain(1)).tokens == (7,)


def test_alternatives_are_siblings_where_the_budget_lets_them_be():
    text = [1, 2, 7, 1, 2, 7, 1, 2, 8, 1, 2]
    draft = SuffixSession(text, ()).propose(TREE)
    assert {draft.tokens[node] for node in draft.children(-1)} >= {7, 8}
    assert SuffixSession(text, ()).propose(Budget(8, 12, chains=True)).is_chain


def test_a_tree_stops_where_its_next_node_is_not_worth_the_row():
    chance = Random(1)
    text = [chance.randrange(4) for _ in range(300)]
    cheap = SuffixSession(text, ()).propose(TREE)
    dear = SuffixSession(text, ()).propose(Budget(8, 12, prices=(0.02, 0.02, *(0.9,) * 10)))
    assert len(cheap) == 12
    assert dear.tokens == cheap.tokens[:2]


def test_a_text_that_defies_its_counts_is_drafted_less_and_one_that_follows_them_more():
    chance = Random(2)
    text = [chance.randrange(12) for _ in range(200)]
    defied, followed = SuffixSession(text, ()), SuffixSession(text, ())
    budget = Budget(4, 4, prices=(0.2, 0.2, 0.2, 0.2), chains=True)
    for _ in range(20):
        draft = defied.propose(budget)
        observe(defied, draft, [(draft.tokens[0] + 1) % 12 if draft.tokens else chance.randrange(12)])
        draft = followed.propose(budget)
        observe(followed, draft, [*draft.tokens, chance.randrange(12)])
    assert len(defied.propose(budget)) < len(followed.propose(budget))


def test_a_store_is_drafted_from_only_where_it_is_given():
    store = SuffixStore("v", 10)
    for _ in range(5):
        store.add([1, 2, 3, 4, 5])
    target = TableTarget(10)
    assert SuffixSession([9, 1, 2], ()).propose(Budget.chain(3)).tokens == ()
    assert SuffixDrafter(10).remembering([store]).open(
        *opening([9, 1, 2], target)
    ).propose(Budget.chain(3)).tokens == (3, 4, 5)  # fmt: skip


def opening(ids, target):
    one = start(target, ids, SuffixDrafter(target.vocab_size))
    from outpace.types import Context, Prompt

    return Prompt(tuple(ids)), Context(), one.laws


def test_a_finished_request_joins_the_store_once_and_only_if_it_learns():
    learns, frozen = SuffixStore("v", 10), SuffixStore("v", 10, learns=False)
    session = SuffixSession([1, 2, 3], [learns, frozen])
    observe(session, Draft(), [4, 5, 6])
    session.close()
    session.close()
    assert learns.tokens == 6
    assert frozen.tokens == 0
    assert SuffixSession([3, 4], [learns]).propose(Budget.chain(2)).tokens == (5, 6)
    assert SuffixSession([1], [learns]).propose(Budget.chain(2)).tokens == ()  # the prompt is context, not text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["coupled", "block"])
def test_drafts_from_a_learning_store_keep_the_text(temperature, rule):
    target, store = TableTarget(order=2), SuffixStore("v", 6)
    expected = plain(target, [1, 2], temperature=temperature, max_tokens=60)
    for _ in range(3):
        one, steps = run(target, [1, 2], SuffixDrafter(6, [store]), temperature=temperature, max_tokens=60, rule=rule)
        one.drafting.close()
        if rule == "coupled" or temperature == 0:
            assert one.committed == expected
    assert store.tokens
    assert sum(step.accepted for step in steps) > 10


def test_trees_keep_the_text():
    target = TableTarget(order=2)
    expected = plain(target, [1, 2], temperature=1.0, max_tokens=120)
    one = start(target, [1, 2], SuffixDrafter(6), temperature=1.0, max_tokens=120)
    one.controller.budget = lambda load: TREE
    steps = list(generate(one, target, SuffixDrafter(6)))
    assert one.committed == expected
    assert any(not step.draft.is_chain for step in steps)


def test_the_work_of_a_proposal_does_not_grow_with_the_history():
    """By counting, not by the clock: a proposal looks up OWN_DEPTH contexts a node, whatever was fed. The clock only
    catches what would be a hundred times slower."""
    chance, counts = Random(0), new_counts(8)
    counts.feed([chance.randrange(5000) for _ in range(1000)])
    session = SuffixSession([chance.randrange(5000) for _ in range(100_000)], ())
    session.propose(TREE)
    best = 1.0
    for _ in range(200):
        observe(session, Draft(), [chance.randrange(5000)])
        begun = perf_counter()
        session.propose(TREE)
        best = min(best, perf_counter() - begun)
    assert best < 5e-3
