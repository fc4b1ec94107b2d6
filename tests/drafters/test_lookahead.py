"""Lookahead: what its probes find out is what it drafts, and its probes cost what they cost."""

from __future__ import annotations

import numpy as np

from fakes import TableTarget, plain, run
from outpace.control import MeasuredController
from outpace.costs import CostProfile
from outpace.drafters.lookahead import GRAM, KEPT, WINDOW, LookaheadDrafter
from outpace.types import Budget, Context, Draft, Prompt, Scores, Step, Timing, Verdict

CYCLE = TableTarget(9, order=1, logits=lambda path: 20.0 * np.eye(9)[(path[-1] + 2) % 9])


def test_a_target_that_counts_is_found_out():
    one, steps = run(CYCLE, (1, 1, 1), LookaheadDrafter(9), draft_length=8, max_tokens=60)
    assert one.committed == plain(CYCLE, (1, 1, 1), max_tokens=60)
    late = steps[len(steps) // 2 :]
    assert sum(step.accepted for step in late) >= 1.5 * len(late)


def test_probes_are_scored_and_never_counted():
    _, steps = run(CYCLE, (1, 1, 1), LookaheadDrafter(9), draft_length=6, max_tokens=40)
    assert all(0 < step.draft.probes <= WINDOW for step in steps[:3])
    assert steps[0].drafted == 0
    assert all(step.drafted <= GRAM - 1 for step in steps)


def test_its_memory_of_a_token_is_bounded():
    target = TableTarget(4, order=2, seed=3)
    drafter = LookaheadDrafter(4)
    one, _ = run(target, (1, 2), drafter, draft_length=8, max_tokens=300, temperature=1.0)
    assert one.committed == plain(target, (1, 2), max_tokens=300, temperature=1.0)
    assert set(one.drafting.pool) <= set(range(4))
    assert max(map(len, one.drafting.pool.values())) <= KEPT


def test_a_round_that_scored_no_probes_leaves_no_guesses():
    session = LookaheadDrafter(9).open(Prompt((1, 2, 3)), Context(), None)
    session.window = [4, 5]
    session.observe(Step(Draft(), Verdict((), 4), (4,), None, Timing()), Scores(np.zeros((1, 9), np.float32)))
    assert session.window == []
    assert session.propose(Budget.chain(4)).tokens == (1, 2, 3, 4)


def test_control_pays_for_probes():
    controller = MeasuredController(CostProfile(), "lookahead", self_limiting=False, patience=1.5)
    chain = Draft((1, 2, 3, 4), (-1, 0, 1, 2), (None,) * 4, probes=4)
    asked = 0
    for _ in range(200):
        if controller.budget(1).depth:
            asked += 1
            controller.observe(Step(chain, Verdict((), 1), (1,), None, Timing(0.0, 1.24, 0.0, 5)))
        else:
            controller.observe(Step(Draft(), Verdict((), 1), (1,), None, Timing(0.0, 1.0, 0.0, 1)))
    assert asked < 30
