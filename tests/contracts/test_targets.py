"""What every target keeps: one cache rule, and a row's logits that depend on its own path alone."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import TableTarget
from outpace.errors import ContextOverflow, UsageError
from outpace.types import EMPTY, Draft, Prompt, Verdict
from tiny_torch import CAUSAL, recorded_target, torch_target

PROMPT = (1, 2, 3, 1, 2)
TREE = Draft((0, 1, 1, 2, 3, 4), (-1, -1, 0, 0, 2, 1), (None,) * 6)


@pytest.fixture(params=["fake", "native", *CAUSAL, *(f"{name} recorded" for name in CAUSAL)])
def target(request):
    if request.param == "fake":
        return TableTarget(max_length=64)
    name, _, recorded = request.param.partition(" ")
    if name in CAUSAL:
        return recorded_target(name) if recorded else torch_target(name)
    loading = pytest.importorskip("outpace.native.loading", reason="the native engine is not built")
    return loading.load_native(request.getfixturevalue("tiny_llama"), threads=2, context=64)


def opened(target, ids=PROMPT):
    return target.open(Prompt(tuple(ids)))[0]


def scored(target, session, draft=EMPTY):
    return np.array(target.score_many([(session, draft)])[0].logits)


def same(target, a, b):
    """Whether two rows of logits agree: to the bit where the target promises it, else up to rounding."""
    return np.array_equal(a, b) if target.bit_exact else np.allclose(a, b, rtol=1e-4, atol=1e-4)


def fresh(target, ids):
    """Returns the logits [V] after `ids`, of a session opened on them."""
    session = opened(target, ids)
    logits = scored(target, session)[0]
    session.close()
    return logits


def test_an_opened_cache_holds_all_but_the_last_token(target):
    assert opened(target).length == len(PROMPT) - 1
    assert opened(target, PROMPT[:1]).length == 0


def test_scores_are_one_row_a_node_and_one_more(target):
    session = opened(target)
    for draft in (EMPTY, Draft.chain([0, 1, 2]), TREE):
        logits = scored(target, session, draft)
        assert logits.shape == (len(draft) + 1, target.vocab_size)
        assert logits.dtype == np.float32
        assert session.length == len(PROMPT) - 1


def test_a_tree_scores_each_path_as_a_chain(target):
    session = opened(target)
    tree = scored(target, session, TREE)
    for node in range(len(TREE)):
        path = TREE.path_to(node)
        chain = scored(target, session, Draft.chain([TREE.tokens[i] for i in path]))
        assert same(target, tree[[0, *(i + 1 for i in path)]], chain)


@pytest.mark.parametrize("path", [(), (0,), (0, 2), (0, 2, 4), (0, 3), (1,), (1, 5)])
def test_after_a_commit_the_state_is_a_fresh_sessions(target, path):
    session = opened(target)
    for next_token in (3, 5):
        before = session.length + 1
        scored(target, session, TREE)
        session.commit(TREE, Verdict(path, next_token))
        assert session.length == before + len(path)
    step = [TREE.tokens[i] for i in path]
    assert same(target, scored(target, session)[0], fresh(target, [*PROMPT, *step, 3, *step, 5]))


def test_a_request_alone_scores_as_among_others(target):
    prompts = [PROMPT, (4,), (5, 5, 0, 1, 2, 3, 4), (2, 1)]
    drafts = [TREE, EMPTY, Draft.chain([1, 0]), Draft.chain([3])]
    sessions = [opened(target, ids) for ids in prompts]
    together = [np.array(s.logits) for s in target.score_many(list(zip(sessions, drafts, strict=True)))]
    for ids, draft, logits in zip(prompts, drafts, together, strict=True):
        assert same(target, scored(target, opened(target, ids), draft), logits)


def test_commits_of_one_request_leave_the_others_alone(target):
    session, other = opened(target), opened(target)
    expected = scored(target, other, TREE)
    scored(target, session, TREE)
    session.commit(TREE, Verdict((0, 2), 5))
    assert same(target, scored(target, other, TREE), expected)


def test_a_rewind_is_absolute_and_forgets_what_follows(target):
    session = opened(target)
    draft = Draft.chain([0, 1, 2])
    scored(target, session, draft)
    session.commit(draft, Verdict((0, 1, 2), 4))
    for _ in range(2):
        session.rewind(6, 3)
        assert session.length == 6
    assert same(target, scored(target, session)[0], fresh(target, [*PROMPT, 0, 3]))
    session.rewind(0, 2)
    assert same(target, scored(target, session)[0], fresh(target, [2]))


def test_a_rewind_beyond_the_cache_is_refused(target):
    session = opened(target)
    for length in (-1, session.length + 1):
        with pytest.raises(UsageError, match="length must be in"):
            session.rewind(length, 0)


def test_a_closed_sessions_prefix_serves_the_next_with_the_same_bits(target):
    ids = [*PROMPT, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1]
    expected = fresh(target, ids)
    assert same(target, fresh(target, ids), expected)
    assert same(target, fresh(target, [*ids[:-3], 5, 5]), fresh(target, [*ids[:-3], 5, 5]))
    assert same(target, fresh(target, ids), expected)


def test_the_whole_context_can_be_used(target):
    ids = [i % 6 for i in range(target.max_length)]
    session = opened(target, ids)
    assert session.length == target.max_length - 1
    assert np.isfinite(scored(target, session)).all()


def test_a_prompt_that_is_empty_or_too_long_is_refused(target):
    for ids in ((), tuple(i % 6 for i in range(target.max_length + 1))):
        with pytest.raises(ContextOverflow):
            target.open(Prompt(ids))
