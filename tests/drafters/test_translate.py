"""A draft of another vocabulary changes nothing, whether read token by token or as text."""

from __future__ import annotations

import numpy as np
import pytest
from letters import LETTERS, letters, translation
from refusals import refused

from fakes import TableTarget, plain, run
from outpace.api import load
from outpace.audit.drafting import chain_from, sharing_noise
from outpace.audit.enumerate import emitted, fractions, joint, random_table, total_variation
from outpace.drafters.translate import ABSENT, StringDrafter, Translated
from outpace.errors import UsageError, VocabularyMismatch
from outpace.registry import DRAFTERS
from outpace.rules import RULES
from outpace.types import EMPTY, Draft, Prompt, Verdict

OURS = ["a", "b", "c", "ab", "bc", "d"]
THEIRS = ["c", "a", "abc", "b", "e", "d", "cd"]
TARGET = TableTarget(len(OURS))
PROMPT = (0, 1, 2, 3, 0)


def draft_model(mode="token", seed=5):
    return Translated(TableTarget(len(THEIRS), seed=seed), translation(OURS, THEIRS), len(OURS), mode)


def drafter(mode):
    return DRAFTERS.get("model" if mode == "token" else "translate")(TARGET, draft_model(mode))


@pytest.mark.parametrize("mode", ["token", "string"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_text_is_plain_decodings(mode, temperature, length):
    how = {"temperature": temperature, "max_tokens": 60}
    one, steps = run(TARGET, PROMPT, drafter(mode), draft_length=length, **how)
    assert one.committed == plain(TARGET, PROMPT, **how)
    assert one.fault is None
    assert any(step.drafted for step in steps)


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_a_restricted_law_is_lossless_by_enumeration(rule):
    """q over five tokens, of which the target has three: restricted and renormalised, it may be drawn from."""
    target, theirs = random_table(3, vocab=3), random_table(9, vocab=5)
    places = {0: 4, 2: 1}  # target token 1 is not in the draft's vocabulary

    def restricted(tokens):
        wide = theirs(tuple(places.get(token, 0) for token in tokens))
        return fractions([int(wide[places[i]] * 5040) if i in places else 0 for i in range(3)])

    drafting = sharing_noise(restricted) if rule == "coupled" else chain_from(restricted)
    assert total_variation(emitted(RULES[rule], target, drafting, (2,), 3), joint(target, 3)) == 0


def test_rows_hold_the_drafts_logits_at_the_targets_ids():
    inner = TableTarget(len(THEIRS), seed=5)
    model = Translated(inner, translation(OURS, THEIRS), len(OURS))
    session, _ = model.open(Prompt((0, 3)))  # "a" + "ab" -> a, then ab spelt a b
    [scores] = model.score_many([(session, Draft.chain([5]))])
    after = [inner.logits((1, 1, 3)), inner.logits((1, 1, 3, 5))]
    for row, wide in zip(scores.logits, after, strict=True):
        assert np.array_equal(row[[0, 1, 2, 5]], wide[[1, 3, 0, 5]])
        assert (row[[3, 4]] == ABSENT).all()


def test_commits_and_rewinds_count_the_targets_tokens():
    model = draft_model()
    session, _ = model.open(Prompt((0, 3, 4, 1)))
    assert session.length == 3
    draft = Draft.chain([4, 2])
    model.score_many([(session, draft)])
    session.commit(draft, Verdict((0,), 3))
    assert session.length == 5
    session.rewind(2, 4)
    [scores] = model.score_many([(session, EMPTY)])
    fresh, _ = model.open(Prompt((0, 3, 4)))
    assert np.array_equal(scores.logits, model.score_many([(fresh, EMPTY)])[0].logits)
    with refused(UsageError, "length must be in [0, 2], got 9"):
        session.rewind(9, 0)


def test_a_self_draft_in_the_same_letters_is_always_accepted():
    target = TableTarget(6)
    token = DRAFTERS.get("model")(target, Translated(target, letters(6), 6))
    string = StringDrafter(Translated(target, letters(6), 6, "string"))
    for one in (token, string):
        _, steps = run(target, PROMPT, one, max_tokens=100, draft_length=3)
        assert all(step.accepted == step.drafted for step in steps)


def test_what_is_written_is_tokenised_anew():
    target = TableTarget(len(OURS), logits=lambda path: np.eye(len(OURS))[3] * 9)  # "ab" for ever
    following = {3: 1, 1: 3}  # a, b, a, b, ...
    writer = TableTarget(len(THEIRS), logits=lambda path: np.eye(len(THEIRS))[following.get(path[-1], 1)] * 9)
    one = StringDrafter(Translated(writer, translation(OURS, THEIRS), len(OURS), "string"))
    _, steps = run(target, (2, 3), one, max_tokens=20, draft_length=4)
    assert sum(step.accepted for step in steps) >= 8  # four letters are two tokens of the target


def test_vocabularies_without_a_common_token_are_refused():
    target = TableTarget(2)
    line = f"{target.name} has no token in common with the target: name another draft model"
    with refused(VocabularyMismatch, line):
        Translated(target, translation(["a", "b"], ["x", "y"]), 2)
    with refused(UsageError, "translate must be 'token' or 'string', got 'word'"):
        Translated(TableTarget(2), letters(2), 2, "word")
    line = (
        "drafter 'translate' needs a draft model of another vocabulary: name one with draft=... and "
        "translate='string' (--draft MODEL --translate string)"
    )
    with refused(UsageError, line):
        DRAFTERS.get("translate")(TARGET, TableTarget(6))
    assert len(LETTERS) == 26


def test_a_tree_and_taps_are_refused():
    model = draft_model()
    session, _ = model.open(Prompt((0, 1)))
    with refused(UsageError, f"{model.name} scores chains, got a tree"):
        model.score_many([(session, Draft((0, 1), (-1, -1), (None, None)))])
    with refused(UsageError, f"{model.name} offers no hidden states"):
        model.open(Prompt((0,)), (1,))


def test_translating_without_a_draft_is_refused_before_anything_is_loaded():
    line = "translate is for a draft of another vocabulary, got 'token' and no draft: name one"
    with refused(UsageError, line):
        load("nothing-like-this", translate="token")
