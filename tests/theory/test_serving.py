"""The model of a server against queueing theory and the papers' formula."""

from __future__ import annotations

from math import inf

import pytest

from outpace.errors import UsageError
from outpace.theory import costs
from outpace.theory.serving import AUTOMATIC, Machine, Speculation, Traffic, percentiles, simulate
from outpace.theory.speedup import tokens_per_step


def machine(slope: float = 0.0, **options: object) -> Machine:
    return Machine(costs.linear(0.01, slope), prefill_tokens_per_second=1e9, **options)  # type: ignore[arg-type]


def test_one_slot_and_fixed_lengths_wait_as_an_m_d_1_queue():
    # Pollaczek and Khinchine: the mean wait is rho s / (2 (1 - rho)) for a constant service time s.
    service, rho = 0.01 * 50, 0.6
    traffic = Traffic(rate=rho / service, requests=40_000, prompt_tokens=1, output_tokens=50, varied=False)
    report = simulate(machine(slots=1), traffic)
    assert report.mean_wait == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.05)
    assert report.busy == pytest.approx(rho, rel=0.02)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_one_request_at_a_time_speeds_up_by_the_formula(alpha, length):
    traffic = Traffic(rate=inf, requests=40, prompt_tokens=1, output_tokens=1000, varied=False)
    plain = simulate(machine(slots=1), traffic)
    fast = simulate(machine(slots=1), traffic, Speculation(length, alpha))
    assert fast.goodput / plain.goodput == pytest.approx(tokens_per_step(alpha, length), rel=0.02)


def test_more_slots_give_more_tokens_where_rows_are_free():
    traffic = Traffic(rate=inf, requests=64, prompt_tokens=1, output_tokens=100, varied=False)
    one, many = (simulate(machine(slots=slots), traffic).goodput for slots in (1, 16))
    assert many == pytest.approx(16 * one, rel=0.05)  # prompts are read one a turn, so the last slots fill late


def test_a_further_request_costs_more_than_a_further_row():
    apart = machine(0.1, request_seconds=0.003)
    assert apart.pass_seconds(1, 3) == machine(0.1).pass_seconds(1, 3)
    assert apart.pass_seconds(4, 0) == pytest.approx(machine(0.1).pass_seconds(4, 0) + 3 * 0.003)
    assert apart.pass_seconds(4, 0) > apart.pass_seconds(1, 3)
    with pytest.raises(UsageError, match="request_seconds"):
        machine(request_seconds=-1.0)


def test_drafts_shrink_and_stop_as_the_load_grows():
    drafts = Speculation(AUTOMATIC, acceptance=0.7)
    lengths = [drafts.length_at(load, machine(0.05)) for load in (1, 4, 16, 64)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 3
    assert lengths[-1] <= 1


@pytest.mark.parametrize("rate", [0.5, 4.0, 20.0])
def test_automatic_drafts_are_no_slower_than_none_or_a_fixed_length(rate):
    server = machine(slope=0.1)
    traffic = Traffic(rate=rate, requests=400, prompt_tokens=10, output_tokens=60)
    automatic = simulate(server, traffic, Speculation(AUTOMATIC, 0.6)).mean_latency
    for length in (0, 4):
        assert automatic <= 1.02 * simulate(server, traffic, Speculation(length, 0.6)).mean_latency


def test_prompts_are_read_in_slices_between_passes():
    slow = Machine(costs.flat(0.01), prefill_tokens_per_second=1000, slice_tokens=100)
    traffic = Traffic(rate=inf, requests=2, prompt_tokens=1000, output_tokens=5, varied=False)
    report = simulate(slow, traffic)
    assert report.first[0] >= 1.9  # the two prompts take turns, so neither is ready after half the time
    assert report.first[2] <= 2.1


def test_the_same_arguments_give_the_same_report():
    traffic = Traffic(rate=3.0, requests=100)
    assert simulate(machine(), traffic) == simulate(machine(), traffic)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Traffic(rate=0),
        lambda: Traffic(rate=1, requests=0),
        lambda: Traffic(rate=1, output_tokens=0),
        lambda: Traffic(rate=1, requests=1_000_000, output_tokens=128),  # hours
        lambda: Speculation(-1),
        lambda: Speculation(1, 1.5),
        lambda: machine(slots=0),
        lambda: percentiles([]),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(UsageError):
        make()
