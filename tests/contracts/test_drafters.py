"""What every drafter keeps: its budget, its laws, and a state that is a function of the committed tokens alone."""

from __future__ import annotations

import numpy as np
import pytest
from letters import letters

from fakes import TableTarget, adversarial, plain, run, scripted, start
from outpace.decode import generate
from outpace.drafters.translate import Translated
from outpace.registry import DRAFTERS
from outpace.sampling import Sampler, SamplingParams
from outpace.types import EMPTY, Budget, Context, Draft, Prompt, Scores, Step, Timing, Verdict

PROMPT = (1, 2, 3, 1, 2)
TARGET = TableTarget()
TEXT = tuple(plain(TARGET, PROMPT, max_tokens=200, temperature=1.0))


def made(name):
    if name == "adversarial":
        return adversarial(TARGET.vocab_size, legal=True)
    if name == "scripted":
        return scripted(TEXT, TARGET.vocab_size, "RRRW")
    small = TableTarget(order=1, seed=5)
    if name == "translate":
        small = Translated(small, letters(TARGET.vocab_size), TARGET.vocab_size, "string")
    return DRAFTERS.get(name)(TARGET, small)


HEADS = ("eagle", "blend", "parallel", "medusa", "blockwise", "published")
"""They need a real target's hidden states; tests/drafters/test_heads.py and tests/heads hold them to the same."""


@pytest.fixture(params=[*(name for name in DRAFTERS.names() if name not in HEADS), "scripted", "adversarial"])
def drafter(request):
    return made(request.param)


def laws(*, shares_noise=True, temperature=1.0):
    return Sampler(SamplingParams(temperature=temperature), seed=3, shares_noise=shares_noise)


def opened(drafter, ids, **how):
    return drafter.open(Prompt(tuple(ids)), Context(), laws(**how))


def proposed(drafter, session, length):
    return drafter.propose_many([(session, Budget.chain(length))])[0]


def content(draft):
    return draft.tokens, draft.parents, draft.probes


def committed(draft, count, tokens):
    """Returns the Step that accepted the first `count` nodes of a chain and ended with the last of `tokens`."""
    return Step(draft, Verdict(tuple(range(count)), tokens[-1]), tuple(tokens), None, Timing())


NO_SCORES = Scores(np.zeros((1, TARGET.vocab_size), np.float32))


def test_the_budget_is_respected(drafter):
    for length in (0, 1, 3, 8):
        for end in (5, 20, 60):
            draft = proposed(drafter, opened(drafter, TEXT[:end]), length)
            assert draft.depth <= length
            assert len(draft) <= length
            assert all(0 <= token < drafter.vocab_size for token in draft.tokens)
            assert drafter.drafts_trees or draft.is_chain


def test_it_does_not_branch_where_the_budget_is_for_chains(drafter):
    for end in (5, 20, 60):
        session = opened(drafter, TEXT[:end])
        [chain] = drafter.propose_many([(session, Budget(depth=6, nodes=6, chains=True))])
        assert drafter.name == "adversarial" or chain.is_chain
        [tree] = drafter.propose_many([(session, Budget(depth=3, nodes=9))])
        assert tree.depth <= 3
        assert len(tree) <= 9
        assert drafter.drafts_trees or tree.is_chain


def test_an_empty_budget_gives_an_empty_draft(drafter):
    assert proposed(drafter, opened(drafter, TEXT[:30]), 0) == EMPTY


@pytest.mark.parametrize("shares_noise", [True, False])
@pytest.mark.parametrize("rounds", [(0, 2, 4), (4, 4, 4, 4), (0, 0, 0, 3), (1, 8, 2), (4, 0, 0, 4, 0, 1)])
def test_after_any_commits_the_state_is_a_fresh_sessions(drafter, rounds, shares_noise):
    session = opened(drafter, TEXT[:10], shares_noise=shares_noise)
    end = 10
    for length in rounds:
        draft = proposed(drafter, session, length)
        right = 0
        while draft.is_chain and right < draft.verified and draft.tokens[right] == TEXT[end + right]:
            right += 1
        session.observe(committed(draft, right, TEXT[end : end + right + 1]), NO_SCORES)
        end += right + 1
        fresh = opened(drafter, TEXT[:end], shares_noise=shares_noise)
        assert content(proposed(drafter, session, 4)) == content(proposed(drafter, fresh, 4))


def test_proposing_twice_gives_the_same_draft(drafter):
    session = opened(drafter, TEXT[:40])
    assert content(proposed(drafter, session, 4)) == content(proposed(drafter, session, 4))


def test_tokens_that_others_drafted_are_followed_too(drafter):
    session = opened(drafter, TEXT[:10])
    for end in range(10, 30, 2):
        proposed(drafter, session, 3)
        session.observe(committed(Draft.chain([TEXT[end]]), 1, TEXT[end : end + 2]), NO_SCORES)
    fresh = opened(drafter, TEXT[:30])
    assert content(proposed(drafter, session, 4)) == content(proposed(drafter, fresh, 4))


@pytest.mark.parametrize("shares_noise", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_law_is_what_its_token_was_drawn_from(drafter, shares_noise, temperature):
    session = opened(drafter, TEXT[:40], shares_noise=shares_noise, temperature=temperature)
    draft = proposed(drafter, session, 6)
    for token, law in zip(draft.tokens, draft.laws, strict=True):
        if law is not None:
            probs = law.probs()
            assert probs.shape == (TARGET.vocab_size,)
            assert probs.sum() == pytest.approx(1)
            assert probs[token] > 0
            assert law.draw() == token


def test_requests_do_not_leak_into_each_other(drafter):
    alone = [content(proposed(drafter, opened(drafter, TEXT[:end]), 4)) for end in (60, 9, 30)]
    sessions = [opened(drafter, TEXT[:end]) for end in (60, 9, 30)]
    together = drafter.propose_many([(session, Budget.chain(4)) for session in sessions])
    assert [content(draft) for draft in together] == alone


def test_a_short_request_after_a_long_one_is_as_in_a_new_process(drafter):
    long = start(TARGET, TEXT[:20], drafter, max_tokens=150)
    list(generate(long, TARGET, drafter))
    long.drafting.close()
    again = content(proposed(drafter, opened(drafter, (1, 2, 1)), 4))
    assert again == content(proposed(made(drafter.name.split("-")[0]), opened(drafter, (1, 2, 1)), 4))


def test_mixed_budgets_in_one_call_each_count(drafter):
    lengths = (3, 0, 1, 5)
    sessions = [opened(drafter, TEXT[:30]) for _ in lengths]
    work = [(session, Budget.chain(length)) for session, length in zip(sessions, lengths, strict=True)]
    for draft, length in zip(drafter.propose_many(work), lengths, strict=True):
        assert len(draft) <= length


def test_what_it_opened_is_closed_with_the_session():
    small = TableTarget(order=1, seed=5)
    drafter = DRAFTERS.get("model")(TARGET, small)
    session = opened(drafter, TEXT[:10])
    assert small.open_sessions == 0  # its prefill waits for the first budget above 0
    proposed(drafter, session, 2)
    assert small.open_sessions == 1
    session.close()
    session.close()
    assert small.open_sessions == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_the_plain_one(drafter, temperature):
    one, _ = run(TARGET, PROMPT, drafter, temperature=temperature, max_tokens=50)
    assert one.committed == plain(TARGET, PROMPT, temperature=temperature, max_tokens=50)
    assert one.fault is None


@pytest.fixture(params=["ngram", "suffix", "mixture"])
def copying(request):
    return made(request.param)


def test_an_expected_answer_is_drafted_from_its_first_token_on(copying):
    answer = (9, 8, 7, 6, 5, 4, 3, 2)
    session = copying.open(Prompt(PROMPT, expected=answer), Context(), laws(temperature=0.0))
    draft = copying.propose_many([(session, Budget(depth=4, nodes=4))])[0]
    assert draft.tokens == answer[:4]


def test_after_an_edit_the_expected_answer_is_taken_up_again(copying):
    session = copying.open(Prompt(PROMPT, expected=(9, 8, 7, 6, 5, 4, 3)), Context(), laws(temperature=0.0))
    session.observe(committed(Draft.chain([9]), 1, (9, 0, 7, 6)), NO_SCORES)
    assert proposed(copying, session, 3).tokens == (5, 4, 3)


@pytest.mark.parametrize("expected", ["right", "wrong", "foreign", "long"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_whatever_is_expected_the_text_is_the_plain_one(copying, expected, temperature):
    text = tuple(plain(TARGET, PROMPT, temperature=temperature, max_tokens=50))
    answer = {
        "right": text[len(PROMPT) :],
        "wrong": text[:4] * 5,
        "foreign": (TARGET.vocab_size + 3, 2**31 - 1),
        "long": text * 40,
    }[expected]
    one, _ = run(TARGET, PROMPT, copying, expected=answer, temperature=temperature, max_tokens=50)
    assert tuple(one.committed) == text
    assert one.fault is None
