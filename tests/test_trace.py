"""What a trace says of a round, on laws over four tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.noise import Purpose, RoundNoise
from outpace.rules.block import Block
from outpace.rules.coupled import Coupled
from outpace.rules.rejection import Rejection
from outpace.trace import Ending, Outcome, Tracer, top, trace_round
from outpace.types import EMPTY, Draft, Law, Observation, Rule, Scores, Step, Timing, Verdict

SEED = 7
COMMITTED = [3, 1, 2]


@dataclass
class Table:
    """A law that always draws `token`."""

    table: list[float]
    token: int = 0

    def draw(self) -> int:
        return self.token

    def probs(self) -> np.ndarray:
        return np.array(self.table)


P = [0.1, 0.2, 0.3, 0.4]
Q = [0.4, 0.3, 0.2, 0.1]


def seen(draft: Draft, verdict: Verdict, laws: list[Law], finish: str | None = None) -> Observation:
    step = Step(draft, verdict, verdict.tokens(draft), finish, Timing(1e-3, 2e-3, 3e-3))
    return Observation(step, laws, Scores(np.zeros((len(draft) + 1, 4))), COMMITTED)


def chain(tokens: list[int], law: Law | None = None) -> Draft:
    return Draft.chain(tokens, [law] * len(tokens))


def test_a_rejected_guess_is_followed_by_the_residual_and_what_came_after_it_was_not_reached() -> None:
    draft = chain([0, 1, 2], Table(Q))
    one = trace_round(seen(draft, Verdict((0,), 3), [Table(P)] * 4), Rejection(), SEED)
    assert [guess.outcome for guess in one.guesses] == [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNREACHED]
    assert [(guess.p, guess.q) for guess in one.guesses] == [(0.1, 0.4), (0.2, 0.3), (0.3, 0.2)]
    assert one.ending is Ending.CORRECTION
    assert one.law_name == "residual"
    assert one.rejected_mass == pytest.approx(0.4)
    assert [(each.token, each.probability) for each in one.law] == [
        (3, pytest.approx(0.75)),
        (2, pytest.approx(0.25)),
    ]
    assert (one.last, one.last_p) == (3, 0.4)


def test_r_is_the_uniform_that_the_rule_itself_used() -> None:
    draft = chain([0, 1], Table(Q))
    noise = RoundNoise(SEED, committed=len(COMMITTED))
    laws = [Table(P)] * 3
    verdict = Rejection()(draft, laws, noise)
    one = trace_round(seen(draft, verdict, laws), Rejection(), SEED)
    for guess in one.guesses:
        if guess.outcome is Outcome.UNREACHED:
            assert guess.r is None
        else:
            assert guess.r == noise.uniform(Purpose.ACCEPT, guess.node)
            assert (guess.r * guess.q < guess.p) == (guess.outcome is Outcome.ACCEPTED)


def test_a_guess_made_without_randomness_has_q_1_and_the_residual_is_the_law_without_it() -> None:
    one = trace_round(seen(chain([3]), Verdict((), 2), [Table(P)] * 2), Rejection(), SEED)
    assert one.guesses[0].q == 1
    assert one.guesses[0].overlap == pytest.approx(0.4)
    assert [each.token for each in one.law] == [2, 1, 0]
    assert sum(each.probability for each in one.law) == pytest.approx(1)


def test_under_shared_noise_both_draws_are_shown_and_there_is_no_r() -> None:
    draft = chain([1, 0], Table(Q))
    one = trace_round(seen(draft, Verdict((0,), 2), [Table(P, 1), Table(P, 2), Table(P, 3)]), Coupled(), SEED)
    assert [(guess.token, guess.drawn, guess.r) for guess in one.guesses] == [(1, 1, None), (0, 2, None)]
    assert one.ending is Ending.CORRECTION
    assert one.law_name == "target"
    assert one.rejected_mass is None


def test_full_acceptance_ends_with_a_bonus() -> None:
    one = trace_round(seen(chain([2, 3]), Verdict((0, 1), 1), [Table(P)] * 3), Rejection(), SEED)
    assert one.ending is Ending.BONUS
    assert one.accepted == 2
    assert one.origins == ("accepted", "accepted", "bonus")


def test_plain_decoding_has_no_guess() -> None:
    one = trace_round(seen(EMPTY, Verdict((), 1), [Table(P)]), Coupled(), SEED)
    assert (one.guesses, one.ending, one.origins) == ((), Ending.PLAIN, ("plain",))


def test_a_stop_inside_the_draft_leaves_its_last_token_an_accepted_guess() -> None:
    draft = chain([2, 3, 1])
    verdict = Verdict((0, 1, 2), 0).cut(2, draft)
    one = trace_round(seen(draft, verdict, [Table(P)] * 4, finish="stop"), Coupled(), SEED)
    assert [guess.outcome for guess in one.guesses] == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.UNREACHED]
    assert one.ending is Ending.STOPPED
    assert one.origins == ("accepted", "accepted")
    assert one.last_p == 0.4


def test_a_tree_shows_which_sibling_was_taken() -> None:
    draft = Draft((1, 2, 0), (-1, -1, 1), (None, None, None))
    one = trace_round(
        seen(draft, Verdict((1, 2), 3), [Table(P, 2), Table(P), Table(P, 0), Table(P, 3)]), Coupled(), 0
    )
    assert [guess.outcome for guess in one.guesses] == [Outcome.REJECTED, Outcome.ACCEPTED, Outcome.ACCEPTED]
    assert [guess.depth for guess in one.guesses] == [1, 1, 2]
    assert one.ending is Ending.BONUS


def test_probes_are_no_guesses() -> None:
    draft = Draft((1, 2), (-1, 0), (None, None), probes=1)
    one = trace_round(seen(draft, Verdict((0,), 3), [Table(P)] * 3), Coupled(), SEED)
    assert len(one.guesses) == 1
    assert one.ending is Ending.BONUS


def test_a_draft_law_over_a_padded_head_is_read_at_the_targets_size() -> None:
    draft = chain([1], Table([*Q, 0.0, 0.0]))
    assert trace_round(seen(draft, Verdict((0,), 3), [Table(P)] * 2), Rejection(), SEED).guesses[0].q == 0.3


def test_a_tracer_numbers_its_rounds_and_hands_them_on() -> None:
    handed: list[int] = []
    rule: Rule = Coupled()
    tracer = Tracer(rule, SEED, on_round=lambda one: handed.append(one.number))
    for _ in range(3):
        tracer(seen(EMPTY, Verdict((), 1), [Table(P)]))
    assert handed == [one.number for one in tracer.rounds] == [1, 2, 3]


def test_the_top_of_a_law_is_ordered_and_leaves_out_what_cannot_be_drawn() -> None:
    assert [each.token for each in top(np.array([0.2, 0.0, 0.5, 0.3]), 3)] == [2, 3, 0]
    assert [each.token for each in top(np.array([0.0, 1.0, 0.0]))] == [1]


def test_a_rejected_sibling_leaves_its_residual_to_the_next_and_later_ones_are_not_tested() -> None:
    tree = Draft((0, 1, 2), (-1, -1, -1), (Table(Q),) * 3)
    one = trace_round(seen(tree, Verdict((1,), 3), [Table(P)] * 4), Rejection(), SEED)
    assert [guess.outcome for guess in one.guesses] == [Outcome.REJECTED, Outcome.ACCEPTED, Outcome.UNREACHED]
    assert one.guesses[2].r is None
    two = Draft((0, 3), (-1, -1), (Table(Q), Table([0, 0, 0, 1.0])))
    one = trace_round(seen(two, Verdict((), 2), [Table(P)] * 3), Rejection(), SEED)
    assert one.rejected_mass == pytest.approx(0.4 * 0.25)
    assert [(each.token, each.probability) for each in one.law] == [(2, pytest.approx(1))]


def test_a_rule_whose_rounds_cannot_be_told_is_refused() -> None:
    with pytest.raises(UsageError, match="rounds can be shown of the rules coupled and rejection, got 'block'"):
        Tracer(Block(), SEED)
