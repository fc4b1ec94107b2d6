"""The loop: whatever is drafted, the text is plain decoding's, and every cache holds what is committed, less one."""

from __future__ import annotations

import pytest

from fakes import PATTERNS, TableTarget, adversarial, plain, raising, run, scripted, start
from outpace.decode import generate, propose
from outpace.drafters.model import ModelDrafter
from outpace.drafters.ngram import NGramDrafter
from outpace.drafters.none import NoDrafts
from outpace.types import PLAIN, Budget, Draft

PROMPT = (1, 2, 3, 1, 2)
LENGTHS = (1, 2, 3, 5, 8)


def drafters(target, truth):
    yield NGramDrafter(target.vocab_size)
    yield ModelDrafter(TableTarget(target.vocab_size, order=1, seed=5), target.vocab_size)
    yield ModelDrafter(target, target.vocab_size)
    yield adversarial(target.vocab_size)
    for pattern in PATTERNS:
        yield scripted(truth, target.vocab_size, pattern)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", LENGTHS)
def test_text_does_not_depend_on_the_drafter_or_its_length(temperature, length):
    target = TableTarget()
    truth = plain(target, PROMPT, temperature=temperature, max_tokens=60)
    for drafter in drafters(target, truth):
        one, _ = run(target, PROMPT, drafter, draft_length=length, temperature=temperature, max_tokens=60)
        assert one.committed == truth, drafter.name
        assert one.fault is None


def test_greedy_text_is_the_same_under_rejection():
    target = TableTarget()
    truth = plain(target, PROMPT)
    for drafter in drafters(target, truth):
        if drafter.name != "adversarial":  # trees
            assert run(target, PROMPT, drafter, rule="rejection")[0].committed == truth, drafter.name


def test_the_cache_holds_all_but_the_last_committed_token_after_every_round():
    target = TableTarget()
    truth = plain(target, PROMPT)
    for drafter in drafters(target, truth):
        one = start(target, PROMPT, drafter)
        for _ in generate(one, target, drafter):
            assert one.session.length == len(one.committed) - 1
            assert one.session.cache == one.committed[:-1]


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block", "traversal"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", range(1, 9))
def test_a_target_that_drafts_for_itself_is_always_right(rule, temperature, length):
    target = TableTarget(spread=2.0)
    drafter = ModelDrafter(target, target.vocab_size)
    _, steps = run(
        target,
        PROMPT,
        drafter,
        rule=rule,
        temperature=temperature,
        draft_length=length,
        max_tokens=30 * (length + 1),
    )
    assert len(steps) == 30
    assert all(step.accepted == step.drafted == length for step in steps)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("count", range(1, 12))
def test_max_tokens_is_met_exactly_and_beats_no_earlier_stop(pattern, count):
    target = TableTarget()
    truth = plain(target, PROMPT, max_tokens=20)
    one, steps = run(target, PROMPT, scripted(truth, target.vocab_size, pattern), max_tokens=count, draft_length=5)
    assert one.committed == truth[: len(PROMPT) + count]
    assert steps[-1].finish == "length"
    assert [step.finish for step in steps[:-1]] == [None] * (len(steps) - 1)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("end", range(1, 14))
def test_a_stop_at_any_place_of_an_accepted_block_cuts_there(pattern, end):
    target = TableTarget()
    truth = plain(target, PROMPT, max_tokens=20)
    seen = iter(range(1, 100))
    one, steps = run(
        target,
        PROMPT,
        scripted(truth, target.vocab_size, pattern),
        draft_length=5,
        max_tokens=20,
        stop=lambda token: "stop" if next(seen) == end else None,
    )
    assert one.committed == truth[: len(PROMPT) + end]
    assert steps[-1].finish == "stop"
    assert one.session.length == len(one.committed) - 1
    assert sum(len(step.tokens) for step in steps) == end
    assert all(len(step.tokens) == step.accepted + 1 for step in steps)


def test_a_stop_on_the_last_allowed_token_is_a_stop():
    target = TableTarget()
    seen = iter(range(1, 100))
    _, steps = run(
        target,
        PROMPT,
        NoDrafts(target.vocab_size),
        max_tokens=6,
        stop=lambda token: "stop" if next(seen) == 6 else None,
    )
    assert steps[-1].finish == "stop"


def test_every_eos_id_ends_the_text():
    target = TableTarget(eos_ids=(3, 4))
    for seed in range(20):
        tokens = plain(target, PROMPT, temperature=1.0, seed=seed, max_tokens=200)[len(PROMPT) :]
        assert tokens[-1] in target.eos_ids
        assert not target.eos_ids & set(tokens[:-1])


@pytest.mark.parametrize("room", range(1, 10))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_near_the_end_of_the_context_the_text_is_plain_decodings(room, pattern):
    truth = plain(TableTarget(), PROMPT, max_tokens=room)
    target = TableTarget(max_length=len(PROMPT) + room)
    drafter = scripted([*truth, *truth], target.vocab_size, pattern)
    one, steps = run(target, PROMPT, drafter, draft_length=6, max_tokens=100)
    assert one.committed == truth
    assert steps[-1].finish == "length"


def test_every_round_commits_at_least_one_token():
    target = TableTarget()
    _, steps = run(target, PROMPT, adversarial(target.vocab_size), draft_length=6, max_tokens=100)
    assert all(step.tokens for step in steps)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_drafter_that_raises_leaves_the_request_plain_and_says_so(after):
    target = TableTarget()
    one, steps = run(target, PROMPT, raising(target.vocab_size, after))
    assert one.committed == plain(target, PROMPT)
    assert one.fault == "RuntimeError: the drafter broke"
    assert all(step.drafted == 0 for step in steps[after:])


def test_an_interrupt_is_not_taken_for_a_fault():
    target = TableTarget()
    drafter = NGramDrafter(target.vocab_size)
    one = start(target, PROMPT, drafter)

    def interrupted(step, scores):
        raise KeyboardInterrupt

    one.drafting.observe = interrupted
    with pytest.raises(KeyboardInterrupt):
        list(generate(one, target, drafter))


def test_a_fault_of_one_request_does_not_reach_the_others():
    target = TableTarget()
    truth = plain(target, PROMPT)
    drafter = scripted(truth, target.vocab_size, "R")
    good, bad = start(target, PROMPT, drafter), start(target, PROMPT, drafter)

    def broken(tokens, budget):
        raise RuntimeError("broken")

    bad.drafting.drafts = broken
    drafts = propose(drafter, [bad, good])
    assert [len(draft) for draft in drafts] == [0, 4]
    assert bad.fault == "RuntimeError: broken"
    assert good.fault is None
    assert bad.budget() == PLAIN


def test_many_requests_in_one_loop_each_give_their_own_text():
    target = TableTarget()
    drafter = ModelDrafter(TableTarget(order=1, seed=5), target.vocab_size)
    prompts = [PROMPT, (0, 4), (5,), (2, 2, 2, 2, 2, 2, 2)]
    options = [{"temperature": i % 2, "draft_length": i, "seed": i, "max_tokens": 10 + 7 * i} for i in range(4)]
    rounds = [start(target, prompt, drafter, **how) for prompt, how in zip(prompts, options, strict=True)]
    while running := [one for one in rounds if not one.finish]:
        drafts = propose(drafter, running)
        scores = target.score_many([(one.session, draft) for one, draft in zip(running, drafts, strict=True)])
        rows = sum(1 + len(draft) for draft in drafts)
        for one, draft, score in zip(running, drafts, scores, strict=True):
            assert one.advance(draft, score, 0.0, 0.0, rows).seconds.rows == rows
    for one, prompt, how in zip(rounds, prompts, options, strict=True):
        assert one.committed == plain(target, prompt, **how)


def test_an_observer_sees_each_round_before_its_tokens_are_committed():
    target = TableTarget()
    seen = []
    one, steps = run(
        target,
        PROMPT,
        NGramDrafter(target.vocab_size),
        observer=lambda o: seen.append((o.step, len(o.committed), len(o.laws), o.scores.logits.shape[0])),
    )
    assert [step for step, *_ in seen] == steps
    count = len(PROMPT)
    for step, committed, laws, rows in seen:
        assert committed == count
        assert laws == rows == len(step.draft) + 1
        count += len(step.tokens)
    assert count == len(one.committed)


def test_seconds_of_a_step_add_up_to_what_was_measured():
    target = TableTarget()
    _, steps = run(target, PROMPT, NGramDrafter(target.vocab_size))
    assert all(step.seconds.score > 0 and step.seconds.verify > 0 and step.seconds.draft > 0 for step in steps)


def test_an_overlong_draft_is_cut_to_the_budget():
    draft = Draft.chain([0, 1, 2, 3, 4, 5])
    assert draft.fitting(Budget.chain(4), 6) == Draft.chain([0, 1, 2, 3])
    assert draft.fitting(Budget.chain(6), 4) == Draft.chain([0, 1, 2, 3])
    assert draft.fitting(Budget.chain(6), 6) is draft


def test_foreign_ids_go_with_their_descendants():
    draft = Draft((0, 9, 1, 2, 3), (-1, -1, 1, 0, 3), (None,) * 5, probes=1)
    assert draft.fitting(Budget(depth=3, nodes=9), 6) == Draft((0, 2, 3), (-1, 0, 1), (None,) * 3, probes=1)
    assert draft.fitting(Budget(depth=2, nodes=9), 6) == Draft((0, 2), (-1, 0), (None,) * 2)
