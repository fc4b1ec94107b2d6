"""Unigram and bigram drafts: laws of counts."""

from __future__ import annotations

import numpy as np
from refusals import refused

from fakes import TableTarget, plain, run
from outpace.drafters.bigram import CountDrafter, Counts
from outpace.errors import UsageError
from outpace.sampling import Sampler, SamplingParams
from outpace.types import Budget, Context, Prompt

V = 6


def law_after(drafter, ids):
    laws = Sampler(SamplingParams(temperature=1.0), seed=1, shares_noise=False)
    session = drafter.open(Prompt(tuple(ids)), Context(), laws)
    [draft] = drafter.propose_many([(session, Budget.chain(1))])
    return draft.laws[0].probs() if draft.laws else None


def test_a_bigram_law_is_the_share_of_what_followed():
    assert np.allclose(law_after(CountDrafter(V), (0, 1, 0, 2, 0, 1, 0)), [0, 2 / 3, 1 / 3, 0, 0, 0])


def test_a_unigram_law_is_the_share_of_each_token():
    assert np.allclose(law_after(CountDrafter(V, order=1), (0, 1, 0, 2)), [0.5, 0.25, 0.25, 0, 0, 0])


def test_nothing_is_drafted_after_a_token_that_nothing_followed():
    assert law_after(CountDrafter(V), (0, 1, 2)) is None


def test_fitted_texts_are_counted_with_the_requests_own():
    fitted = Counts.fit([(2, 3, 2, 3), (2, 4)])
    assert np.allclose(law_after(CountDrafter(V, fitted=fitted), (1, 2)), [0, 0, 0, 2 / 3, 1 / 3, 0])
    assert np.allclose(law_after(CountDrafter(V, fitted=fitted), (2, 5, 2)), [0, 0, 0, 0.5, 0.25, 0.25])
    assert fitted.after[2] == {3: 2, 4: 1}


def test_acceptance_under_rejection_is_the_overlap_of_the_laws():
    """A target whose law is a bigram's: fitted on its own output, nearly all it drafts is right."""
    target = TableTarget(V, order=1, spread=2.0)
    fitted = Counts.fit([plain(target, (0,), temperature=1.0, max_tokens=3000, seed=8)])
    _, steps = run(target, (0,), CountDrafter(V, fitted=fitted), rule="rejection", temperature=1.0, max_tokens=2000)
    rate = sum(step.accepted for step in steps) / sum(step.drafted for step in steps)
    assert rate > 0.9


def test_wrong_orders_and_foreign_tokens_are_refused():
    with refused(UsageError, "order must be 1 (unigram) or 2 (bigram), got 3"):
        CountDrafter(V, order=3)
    with refused(UsageError, "fitted token ids must be in [0, 6), got 1 to 9"):
        CountDrafter(V, fitted=Counts.fit([(1, 9)]))
