"""The law of the whole loop: the joint frequencies of the next three tokens against the exact law, enumerated.

Each test draws n = 2,000 texts with fixed seeds and compares 27 outcomes by chi-square at level 0.001 (26 degrees of
freedom, critical value 54.1). Against a law that differs by a fifth in every outcome (total variation 0.1) the
noncentrality is n 0.2^2 = 80 and the power 0.99; the mutant below is caught.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from fakes import TableTarget, run
from outpace.drafters.model import ModelDrafter
from outpace.drafters.ngram import NGramDrafter
from outpace.sampling import Sampler, SamplingParams
from outpace.types import Draft, Scores

N, CRITICAL, LENGTH, VOCAB = 2000, 54.1, 3, 3
PROMPT = (1, 2, 0, 1, 2)
TARGET = TableTarget(VOCAB, order=2, spread=0.8)
SMALL = TableTarget(VOCAB, order=1, seed=9, spread=0.8)


def exact_law():
    sampler = Sampler(SamplingParams(temperature=1.0), 0)

    def probs(path):
        return sampler(Scores(TARGET.logits(path)[None]), path, Draft())[0].probs()

    law = {}
    for outcome in product(range(VOCAB), repeat=LENGTH):
        law[outcome] = np.prod([probs((*PROMPT, *outcome[:i]))[token] for i, token in enumerate(outcome)])
    return law


def chi_square(drafter, rule, draft_length):
    counts = Counter(
        tuple(
            run(
                TARGET,
                PROMPT,
                drafter,
                rule=rule,
                temperature=1.0,
                seed=seed,
                draft_length=draft_length,
                max_tokens=LENGTH,
            )[0].committed[len(PROMPT) :]
        )
        for seed in range(N)
    )
    return sum((counts[outcome] - N * p) ** 2 / (N * p) for outcome, p in exact_law().items())


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block", "traversal"])
@pytest.mark.parametrize("drafter", [ModelDrafter(SMALL, VOCAB), NGramDrafter(VOCAB)], ids=lambda d: d.name)
def test_the_joint_law_of_three_tokens_is_the_targets(rule, drafter):
    assert chi_square(drafter, rule, draft_length=2) < CRITICAL


class Greedy(ModelDrafter):
    """A mutant: it takes its likeliest token, and claims to have drawn it from its law."""

    def propose_many(self, work):
        drafts = super().propose_many(work)
        return [Draft.chain([int(np.argmax(law.probs())) for law in draft.laws], draft.laws) for draft in drafts]


def test_a_drafter_that_misstates_its_law_is_caught():
    assert chi_square(Greedy(SMALL, VOCAB), "rejection", draft_length=2) > CRITICAL
