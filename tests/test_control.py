"""Controllers, against simulated machines: passes and drafts cost what a formula says, and chance accepts.

No clock is read: the Steps carry the seconds, so every figure here is exact and repeatable.
"""

from __future__ import annotations

from random import Random

import pytest

from outpace.control import LAST_GAP, LONGEST, FixedController, MeasuredController
from outpace.costs import FIRST_LOOKS, LOOK, CostProfile
from outpace.drafters.ngram import NGramSession
from outpace.errors import UsageError
from outpace.estimates import Acceptance
from outpace.types import EMPTY, Budget, Draft, Scores, Step, Timing, Verdict


class Machine:
    """seconds of a pass over n rows: 1 + row (n - 1); of a draft of d tokens: d token."""

    def __init__(self, row, token=0.0, noise=0.0, seed=0):
        self.row, self.token, self.noise = row, token, noise
        self.rng = Random(seed)

    def seconds(self, drafted):
        noisy = 1 + self.noise * abs(self.rng.gauss(0, 1))
        return Timing(self.token * drafted, (1 + self.row * drafted) * noisy, 0.0, rows=1 + drafted)


def simulate(controller, machine, accepts, rounds, proposes=lambda i, budget: budget.depth):
    """Returns (speed against plain, drafted a round) of `rounds` rounds; accepts(i) decides on a draft token."""
    tokens = drafted = 0
    seconds = 0.0
    for i in range(rounds):
        count = proposes(i, controller.budget(1))
        right = 0
        while right < count and accepts(i):
            right += 1
        time = machine.seconds(count)
        step = Step(Draft.chain([0] * count), Verdict(tuple(range(right)), 0), (0,) * (right + 1), None, time)
        controller.observe(step)
        tokens += right + 1
        drafted += count
        seconds += (1 + machine.row * count) + machine.token * count
    return tokens / seconds, drafted / rounds


def free():
    return MeasuredController(CostProfile(), "ngram", self_limiting=True)


def costly(patience=16.0):
    return MeasuredController(CostProfile(), "model", self_limiting=False, patience=patience)


def best_length(alpha, row, token):
    """The draft length with the highest speed-up, by Leviathan et al. 2023 with a cost for each row."""

    def speed(g):
        return sum(alpha**i for i in range(g + 1)) / (1 + (row + token) * g)

    return max(range(LONGEST + 1), key=speed), max(map(speed, range(LONGEST + 1)))


@pytest.mark.parametrize("row", [0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("rounds", [128, 2000])
def test_a_free_drafter_that_is_always_wrong_costs_at_most_three_percent(row, rounds):
    speed, _ = simulate(free(), Machine(row, noise=0.1), lambda i: False, rounds)
    assert speed >= 0.97


@pytest.mark.parametrize(("row", "token"), [(0.05, 0.4), (0.1, 1.0)])
def test_a_draft_model_that_is_always_wrong_is_given_up(row, token):
    _, drafted = simulate(costly(), Machine(row, token), lambda i: False, 2000)
    assert drafted < 0.1
    speed, _ = simulate(costly(), Machine(row, token), lambda i: False, 5000)
    assert speed >= 0.97


def test_a_self_draft_of_equal_cost_is_not_used():
    controller = costly()
    simulate(controller, Machine(0.05, token=1.0), lambda i: True, 200)
    assert [controller.budget(1).depth for _ in range(3)] == [0, 0, 0]


def test_probes_that_are_right_and_do_not_pay_become_rare():
    """128 rounds of a request: three probes, where one whose guesses were right once came every sixteen rounds."""
    controller, asked = costly(), []
    simulate(controller, Machine(0.05, token=1.0), lambda i: True, 128, lambda i, b: asked.append(b.depth) or b.depth)
    assert sum(depth > 0 for depth in asked[8:]) <= 3


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.9])
@pytest.mark.parametrize(("row", "token"), [(0.03, 0.05), (0.1, 0.15), (0.03, 0.3)])
def test_a_draft_models_length_comes_near_the_best(alpha, row, token):
    rng = Random(3)
    speed, _ = simulate(costly(), Machine(row, token, noise=0.05), lambda i: rng.random() < alpha, 3000)
    _, best = best_length(alpha, row, token)
    assert speed >= 0.94 * best


def test_drafting_comes_back_when_the_text_turns():
    rng = Random(1)
    turned = 1500

    def accepts(i):
        return rng.random() < (0.9 if i >= turned else 0.0)

    for controller in (free(), costly()):
        machine = Machine(0.05, 0.0 if controller.budget(1).depth == LONGEST else 0.05)
        simulate(controller, machine, lambda i: False, turned)
        speed, _ = simulate(controller, machine, lambda i: rng.random() < 0.9, 2 * LAST_GAP)
        assert speed > 1.5


def test_good_drafts_are_not_held_back():
    rng = Random(2)
    speed, _ = simulate(free(), Machine(0.05), lambda i: rng.random() < 0.9, 1000)
    assert speed > 0.9 * sum(0.9**i for i in range(LONGEST + 1)) / (1 + 0.05 * LONGEST)


@pytest.mark.parametrize("slow", [3, 4, 5, 8])
def test_one_slow_pass_does_not_end_a_request_s_drafts(slow):
    controller, machine, calls = free(), Machine(0.05), iter(range(1000))
    machine.noise, machine.rng.gauss = 1.0, lambda mean, width: 4.0 if next(calls) == slow else 0.0
    _, drafted = simulate(controller, machine, lambda i: i % 3 > 0, 100)
    assert drafted > 2


def test_what_is_read_with_a_first_draft_says_nothing_of_later_ones():
    """A head reads the prompt's end with its first draft, in the time of three plain passes."""

    class ReadsFirst(Machine):
        first = True

        def seconds(self, drafted):
            timing = super().seconds(drafted)
            if drafted and self.first:
                self.first = False
                return Timing(3.0, timing.score, 0.0, timing.rows)
            return timing

    chance = Random(0)
    _, drafted = simulate(free(), ReadsFirst(0.05), lambda i: chance.random() < 0.6, 60)
    assert drafted > 2


def text_speed(text, row):
    """Returns the speed against plain of n-gram drafts under measured control, on a given text."""
    controller, session, machine = free(), NGramSession(text[:50], 1), Machine(row, noise=0.05)
    done, seconds = 50, 0.0
    while done < len(text):
        budget = controller.budget(1).clipped(len(text) - done - 1)
        draft = session.propose(budget) if budget.depth else EMPTY
        right = 0
        while right < len(draft) and draft.tokens[right] == text[done + right]:
            right += 1
        tokens = tuple(text[done : done + right + 1])
        step = Step(draft, Verdict(tuple(range(right)), tokens[-1]), tokens, None, machine.seconds(len(draft)))
        controller.observe(step)
        session.observe(step, Scores(None))
        done += right + 1
        seconds += 1 + row * len(draft)
    return (len(text) - 50) / seconds


@pytest.mark.parametrize("row", [0.03, 0.1, 0.2])
def test_ngram_drafts_never_lose_on_random_text_and_win_on_repetitive_text(row):
    rng = Random(5)
    random_text = [rng.randrange(40) for _ in range(400)]
    assert text_speed(random_text, row) >= 0.97
    phrase = [rng.randrange(1000) for _ in range(60)]
    repetitive = (phrase + [rng.randrange(1000) for _ in range(10)]) * 8
    assert text_speed(repetitive, row) > 1.5


def test_a_plain_pass_is_measured_before_anything_is_drafted():
    controller = free()
    assert controller.budget(1).depth == 0


def test_costs_outlive_the_request_and_nothing_else_does():
    profile = CostProfile()
    first = MeasuredController(profile, "model", self_limiting=False)
    simulate(first, Machine(0.05, 0.05), lambda i: False, 300)
    second = MeasuredController(profile, "model", self_limiting=False)
    drafted = []
    simulate(second, Machine(0.05, 0.05), lambda i: False, 2, lambda i, budget: drafted.append(budget.depth) or 0)
    assert drafted[0] == 0 < drafted[1]


def test_a_fixed_controller_does_as_told():
    assert FixedController(5).budget(1) == Budget.chain(5)
    assert FixedController(0).budget(3) == Budget.chain(0)
    for length in (-1, 129, 10**9):
        with pytest.raises(UsageError, match=rf"draft_length must be in \[0, 128\].*, got {length}"):
            FixedController(length)


def test_a_rejection_says_nothing_of_the_positions_after_it():
    acceptance = Acceptance(0.7)
    for _ in range(200):
        acceptance.observe(3, 1)
    first, second, third = acceptance.reached(3)
    assert first > 0.9
    assert second / first < 0.1
    assert third / second == pytest.approx(second / first, rel=0.01)


def test_the_reason_is_a_few_words():
    controller = free()
    assert controller.reason() == "nothing drafted"
    simulate(controller, Machine(0.05), lambda i: i % 2 == 0, 50)
    assert "tokens a draft" in controller.reason()
    assert "of one" in controller.reason()


def test_a_shared_pass_is_learned_by_its_own_rows():
    profile = CostProfile()
    controller = MeasuredController(profile, "ngram", self_limiting=True)
    for _ in range(FIRST_LOOKS):
        controller.observe(Step(EMPTY, Verdict((), 0), (0,), None, Timing(score=1.0)))
    controller.budget(4)
    shared = Timing(score=1.0, verify=0.25, rows=9)  # four requests of one to four rows
    controller.observe(Step(Draft.chain([0, 0]), Verdict((), 0), (0,), None, shared))
    assert profile.score.seen(9) == 0  # nine rows of one request are another thing
    plain = profile.cost(4, 0)
    assert profile.cost(4, 1) == pytest.approx(plain + (2.0 - plain) * 4 / 5)  # five rows were drafted


def in_company(load, price, rounds):
    """Returns how many of the rounds had drafts of requests that are right half of the time.

    price: of a pass with drafts, in passes of as many plain requests, however few of them draft.
    """
    profile = CostProfile()
    for i in range(8):
        profile.observe_shared(load, load, 4.0 + i / 1000, 0.0)
        profile.observe_shared(load, load + 1, 4.0 * price + i / 1000, 0.0)
    controllers = [MeasuredController(profile, "ngram", self_limiting=True, patience=1.0) for _ in range(load)]
    drafting = 0
    for i in range(rounds):
        drafts = [min(one.budget(load).depth, 1) for one in controllers]
        drafting += any(drafts)
        time = Timing(score=(4.0 * price if any(drafts) else 4.0) + i * 1e-6, rows=load + sum(drafts))
        for n, (one, drafted) in enumerate(zip(controllers, drafts, strict=True)):
            right = Verdict((0,) * drafted if (i + n) % 2 else (), 0)
            one.observe(Step(Draft.chain([0] * drafted), right, (0,) * (1 + len(right.path)), None, time))
    return drafting


def test_what_one_draft_costs_all_is_charged_to_it():
    """Where one row more needs another tile of the kernels, a single draft makes the round dear for everybody."""
    assert in_company(16, 1.35, 60) == 0
    assert in_company(8, 1.02, 60) > 40


def test_a_plain_pass_is_taken_now_and_then_however_good_the_drafts_are():
    controller, counts = free(), []
    simulate(controller, Machine(0.05), lambda i: True, 3 * LOOK, lambda i, b: counts.append(b.depth) or b.depth)
    assert [i for i, depth in enumerate(counts) if not depth] == [0, 1, 2, LOOK + 3, 2 * LOOK + 4]


def test_requests_in_company_look_at_the_same_pass():
    profile = CostProfile()
    controllers = [MeasuredController(profile, "ngram", self_limiting=True) for _ in range(4)]
    plain = []
    for i in range(LOOK + 12):
        depths = [min(one.budget(4).depth, 2) for one in controllers]
        assert len(set(depths)) == 1
        plain += [] if depths[0] else [i]
        time = Timing(score=1 + 0.1 * depths[0] + i * 1e-6, rows=4 + sum(depths))
        right = Verdict(tuple(range(depths[0])), 0)
        for one in controllers:
            one.observe(Step(Draft.chain([0] * depths[0]), right, (0,) * (depths[0] + 1), None, time))
    assert plain == [0, LOOK + 1]
