"""What every drafter keeps, kept by heads on a native target; and their trees."""

from __future__ import annotations

import os

import numpy as np
import pytest
from refusals import refused

from fakes import TableTarget
from outpace.drafters.blend import LEAST_MISS, Looks
from outpace.errors import UsageError
from outpace.generation import together
from outpace.registry import DRAFTERS
from outpace.sampling import Sampler, SamplingParams
from outpace.types import EMPTY, Budget, Context, Draft, Prompt, Scores, Step, Timing, Verdict
from small_heads import KINDS, write_head

TEXT = tuple((37 * i + i * i) % 320 for i in range(120))


def made(name, native, tmp_path, monkeypatch):
    write_head(tmp_path / "head.safetensors", native.target, "eagle" if name == "blend" else name)
    monkeypatch.setenv("OUTPACE_HEADS", str(tmp_path))
    return DRAFTERS.get(name)(native.target, None)


@pytest.fixture(params=(*KINDS, "blend"))
def drafter(request, native, tmp_path, monkeypatch):
    return made(request.param, native, tmp_path, monkeypatch)


@pytest.fixture(params=KINDS)
def head_alone(request, native, tmp_path, monkeypatch):
    return made(request.param, native, tmp_path, monkeypatch)


@pytest.fixture
def blend(native, tmp_path, monkeypatch):
    return made("blend", native, tmp_path, monkeypatch)


def test_requests_share_a_drafter_until_its_file_changes(native, drafter, tmp_path):
    make = DRAFTERS.get(drafter.name)
    assert make(native.target, None) is drafter
    os.utime(tmp_path / "head.safetensors", ns=(0, 0))
    assert make(native.target, None) is not drafter


def test_requests_that_share_a_pass_have_the_plain_texts(native, drafter):
    how = {"max_tokens": 16, "temperature": 0.8, "seed": 5, "raw": True}
    prompts = ("words", "other words", "more")
    plain = [native.generate(prompt, drafter="none", **how).tokens for prompt in prompts]
    shared = together(
        [native.stream(prompt, drafter=drafter.name, draft_length=3, **how) for prompt in prompts], native.target
    )
    assert [result.tokens for result in shared] == plain
    assert [result.fault for result in shared] == [None] * 3
    assert all(result.drafted for result in shared)


def laws(*, shares_noise=True, temperature=1.0):
    return Sampler(SamplingParams(temperature=temperature), seed=3, shares_noise=shares_noise)


def opened(target, drafter, end, **how):
    session, context = target.open(Prompt(TEXT[:end]), drafter.taps)
    return session, drafter.open(Prompt(TEXT[:end]), context, laws(**how))


def proposed(drafter, drafting, length, nodes=None):
    return drafter.propose_many([(drafting, Budget(length, nodes or length))])[0]


def content(draft):
    return draft.tokens, draft.parents, draft.probes


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shares_noise", [True, False])
def test_after_any_commits_the_state_is_a_fresh_sessions(native, drafter, temperature, shares_noise):
    how = {"temperature": temperature, "shares_noise": shares_noise}
    session, drafting = opened(native.target, drafter, 10, **how)
    end = 10
    for length, right in ((0, 0), (3, 2), (3, 0), (1, 1), (0, 0), (0, 0), (3, 3)):
        proposed(drafter, drafting, length)
        draft = Draft.chain(TEXT[end : end + right])
        [scores] = native.target.score_many([(session, draft)])
        verdict = Verdict(tuple(range(right)), TEXT[end + right])
        session.commit(draft, verdict)
        step = Step(draft, verdict, TEXT[end : end + right + 1], None, Timing())
        drafting.observe(step, scores)
        end += right + 1
        _, fresh = opened(native.target, drafter, end, **how)
        assert content(proposed(drafter, drafting, 3)) == content(proposed(drafter, fresh, 3))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_text_is_the_plain_one(native, drafter, temperature, length):
    how = {"max_tokens": 40, "temperature": temperature, "seed": 5, "raw": True}
    plain = native.generate("words", drafter="none", **how)
    drafted = native.generate("words", drafter=drafter.name, draft_length=length, **how)
    assert drafted.fault is None
    assert drafted.tokens == plain.tokens
    assert sum(step.drafted for step in drafted.steps) > 0


@pytest.mark.parametrize("shares_noise", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_law_is_what_its_token_was_drawn_from(native, drafter, temperature, shares_noise):
    _, drafting = opened(native.target, drafter, 40, temperature=temperature, shares_noise=shares_noise)
    draft = proposed(drafter, drafting, 3)
    assert len(draft)
    for token, law in zip(draft.tokens, draft.laws, strict=True):
        assert (law is None) == (temperature == 0 or drafter.name == "blend")
        if law is not None:
            probs = law.probs()
            assert probs.shape == (native.target.vocab_size,)
            assert probs.sum() == pytest.approx(1)
            assert probs[token] > 0
            assert law.draw() == token
            assert np.count_nonzero(probs) <= len(drafter.head.draft_ids)


def test_the_budget_is_respected(native, drafter):
    _, drafting = opened(native.target, drafter, 30)
    assert proposed(drafter, drafting, 0) == EMPTY
    for depth, nodes in ((1, 1), (2, 5), (3, 3), (8, 8)):
        for temperature in (0.0, 1.0):
            _, drafting = opened(native.target, drafter, 30, temperature=temperature)
            draft = proposed(drafter, drafting, depth, nodes)
            assert draft.depth <= depth
            assert len(draft) <= nodes


def test_what_the_drafter_is_not_sure_of_is_not_drafted(native, drafter):
    for temperature in (0.0, 1.0):
        _, drafting = opened(native.target, drafter, 30, temperature=temperature)
        assert drafter.propose_many([(drafting, Budget(4, 4, min_path_probability=1.0))]) == [EMPTY]


def test_where_nothing_that_it_knows_is_allowed_it_drafts_nothing(native, head_alone):
    unknown = [token for token in range(320) if token % 5]  # the head's are every fifth
    how = {"max_tokens": 12, "seed": 5, "raw": True, "ignore_eos": True, "allowed": unknown}
    for temperature in (0.0, 1.0):
        plain = native.generate("words", drafter="none", temperature=temperature, **how)
        drafted = native.generate("words", drafter=head_alone.name, draft_length=3, temperature=temperature, **how)
        assert drafted.fault is None
        assert drafted.tokens == plain.tokens
        assert sum(step.drafted for step in drafted.steps) == 0


def test_proposing_twice_gives_the_same_draft(native, drafter):
    _, drafting = opened(native.target, drafter, 40)
    assert content(proposed(drafter, drafting, 3)) == content(proposed(drafter, drafting, 3))


def test_requests_do_not_leak_into_each_other(native, drafter):
    ends = (60, 9, 30)
    alone = [content(proposed(drafter, opened(native.target, drafter, end)[1], 3)) for end in ends]
    work = [(opened(native.target, drafter, end)[1], Budget.chain(3)) for end in ends]
    assert [content(draft) for draft in drafter.propose_many(work)] == alone


def test_a_prompt_of_one_token_has_nothing_to_go_on_from(native, drafter):
    _, drafting = opened(native.target, drafter, 1)
    assert proposed(drafter, drafting, 3) == EMPTY


def test_without_hidden_states_it_says_what_is_missing(native, drafter):
    line = "a head needs the target's hidden states"
    with refused(UsageError, line + ": open the target with the drafter's taps"):
        drafter.open(Prompt(TEXT[:10]), Context(), laws())
    _, drafting = opened(native.target, drafter, 10)
    step = Step(EMPTY, Verdict((), 1), (1,), None, Timing())
    with refused(UsageError, line + " with every round's scores"):
        drafting.observe(step, Scores(np.zeros((1, 320), np.float32)))


def test_other_engines_are_refused(drafter):
    target = TableTarget()
    line = f"draft heads run on the native engine, {target.name} is on {target.engine}: use 'ngram'"
    with refused(UsageError, line):
        DRAFTERS.get(drafter.name)(target, None)


def test_closing_gives_the_cache_back_once(native, drafter):
    _, drafting = opened(native.target, drafter, 30)
    proposed(drafter, drafting, 2)
    drafting.close()
    drafting.close()


def followed(native, drafting, session, end, count):
    """Has the text's next tokens committed one at a time."""
    for at in range(end, end + count):
        [scores] = native.target.score_many([(session, EMPTY)])
        verdict = Verdict((), TEXT[at])
        session.commit(EMPTY, verdict)
        drafting.observe(Step(EMPTY, verdict, (TEXT[at],), None, Timing()), scores)


def test_the_head_begins_with_late_tokens_alone(native, blend, monkeypatch):
    monkeypatch.setattr("outpace.drafters.blend.WINDOW", 16)
    session, drafting = opened(native.target, blend, 60)
    first = proposed(blend, drafting, 3)
    assert drafting._native.length == 15  # the last of them is the root of every draft
    _, late = opened(native.target, blend, 60)
    late._features.keep(16)
    assert content(proposed(blend, late, 3)) == content(first)
    followed(native, drafting, session, 60, 40)  # none of them drafted: no look
    assert drafting._features.waits <= 32
    assert content(proposed(blend, drafting, 3)) == content(proposed(blend, opened(native.target, blend, 100)[1], 3))


def test_what_a_look_costs_decides_who_is_asked(native, blend):
    """The head's law alone has candidates here: the texts repeat nothing."""
    dear, free = (Budget(3, 3, prices=(0.0,) * 3, tokens_per_second=rate) for rate in (1e9, 1e-9))

    def drafts(budget, company):
        work = [(opened(native.target, blend, 30)[1], budget) for _ in range(company)]
        for _ in range(2):  # the first look also reads the prompt, and its time says nothing
            blend.propose_many(work)
        return [len(draft) for draft in blend.propose_many(work)]

    assert drafts(free, 1) == [3]
    assert drafts(dear, 1) == [0]
    assert drafts(free, 3) == [0, 0, 0]
    assert drafts(Budget(3, 3), 3) == [3, 3, 3]  # of a fixed length drafts do not depend on the company


def test_a_head_is_first_asked_where_looks_may_pay():
    """At 475 tokens a second a look is worth its time where counts know nothing, at those of sixteen requests not."""
    looks = Looks()
    assert looks.least_miss(Budget(4, 4, tokens_per_second=475.0)) < 1.0
    assert looks.least_miss(Budget(4, 4, tokens_per_second=2000.0)) > 1.0
    assert looks.least_miss(Budget(4, 4)) == LEAST_MISS  # of a fixed length
    for _ in range(3):
        looks.observe(1.0, 0.4, 50e-6)
    assert looks.least_miss(Budget(4, 4, tokens_per_second=2000.0)) < 1.0
