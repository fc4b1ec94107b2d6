"""The plain answers: when to speculate, when not to, and the figures behind either."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outpace.errors import UsageError
from outpace.theory.planner import Plan, plan
from outpace.theory.question import Question
from outpace.theory.ranking import LEAST_GAIN, Ranked
from outpace.theory.roofline import Device, Efficiency, device, precision
from outpace.theory.shape import preset

LLAMA_8B = Question(preset("llama-3.1-8b"), device("h100"), precision("bf16"))
LLAMA_70B = Question(preset("llama-3.1-70b"), device("h100"), precision("fp8"), concurrency=(1,))


def of(found: Plan, name: str) -> Ranked:
    return next(one for one in found.ranked if one.candidate.name == name)


def test_a_draft_whose_cost_reaches_its_acceptance_is_refused_with_both_figures() -> None:
    found = plan(replace(LLAMA_8B, drafts=(preset("llama-3.1-8b"),)))
    assert not found.speculate
    assert found.verdict.startswith("do not speculate with llama-3.1-8b at 1 at once")
    assert "c = 1.000 is not below alpha = 0.801" in found.verdict


def test_a_measured_cost_above_a_measured_acceptance_is_refused_too() -> None:
    question = replace(LLAMA_8B, drafts=(preset("llama-3.2-1b"),), acceptance={"draft": 0.3}, cost=0.3)
    found = plan(question)
    assert not found.speculate
    assert "c = 0.300 is not below alpha = 0.300" in found.verdict


@pytest.mark.parametrize("drafts", [(), (preset("llama-3.2-1b"),)], ids=["any drafter", "1B draft"])
def test_an_8b_at_batch_256_speculates_at_context_1000_and_not_at_128(drafts: tuple[object, ...]) -> None:
    crowded = replace(LLAMA_8B, drafts=drafts, concurrency=(256,), context=128)
    short, long = plan(crowded), plan(replace(crowded, context=1000))
    assert not short.speculate
    assert short.verdict.startswith("do not speculate")
    assert not any(one.speculate for one in short.ranked)
    assert "2 rows score in 1.80 times the time of one" in short.ranked[0].reason
    assert "512 rows a pass are bound by arithmetic, which begins after 225 rows" in short.ranked[0].reason
    assert long.speculate
    assert of(long, "llama-3.2-1b").first.speedup >= LEAST_GAIN
    assert [one.candidate.acceptance for one in short.ranked if one.candidate.name == "llama-3.2-1b"] == [
        of(long, "llama-3.2-1b").candidate.acceptance
    ]


def test_a_pair_that_does_not_fit_is_told_what_would() -> None:
    found = plan(replace(LLAMA_70B, drafts=(preset("llama-3.1-8b"),)))
    assert not found.speculate
    assert "does not fit on h100 with 1 at once: 0.5 GB are missing, 0 fit" in found.verdict
    assert "the largest draft that does: llama-3.2-3b" in found.verdict
    assert "the next device on which it fits: h200" in found.verdict
    assert found.alternative is not None
    assert plan(replace(found.question, device=device("h200"))).speculate


def test_a_target_that_does_not_fit_alone_is_the_whole_answer() -> None:
    found = plan(replace(LLAMA_8B, target=preset("llama-3.1-405b")))
    assert not found.speculate
    assert found.chosen is None
    assert "llama-3.1-405b does not fit on h100 with 1 at once" in found.verdict
    assert "more devices, or fewer bits" in found.verdict


def test_the_requests_lost_to_a_draft_stand_beside_its_speed_up() -> None:
    draft = of(plan(LLAMA_8B), "llama-3.2-1b")
    assert draft.first.speedup > 1.5
    assert draft.weight_bytes == pytest.approx(2.47e9, rel=0.01)
    assert draft.requests + draft.requests_lost == plan(LLAMA_8B).fit.requests
    assert draft.requests_lost > 100
    assert of(plan(LLAMA_8B), "n-grams").requests_lost == 0


def test_candidates_that_pay_come_first_and_faster_ones_before_slower() -> None:
    ranked = plan(replace(LLAMA_8B, concurrency=(200,), context=128)).ranked
    order = [(not one.speculate, -one.first.speedup) for one in ranked]
    assert order == sorted(order)
    assert {one.candidate.kind for one in ranked} == {"draft", "eagle", "ngram"}


def test_load_eats_the_gain_of_short_contexts() -> None:
    loads = of(plan(replace(LLAMA_8B, context=128, concurrency=(1, 64, 128, 256))), "llama-3.2-1b").loads
    assert [load.requests for load in loads] == [1, 64, 128, 256]
    gains = [load.speedup for load in loads]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] == 1.0


def test_it_pays_up_to_the_edge_that_the_speed_up_has() -> None:
    question = replace(LLAMA_8B, context=128, drafts=(preset("llama-3.2-1b"),))
    edge = of(plan(question), "llama-3.2-1b").pays_up_to
    assert edge is not None
    assert plan(replace(question, concurrency=(edge,))).speculate
    assert not plan(replace(question, concurrency=(edge + 1,))).speculate


def test_another_tokenizer_never_drafts() -> None:
    found = plan(replace(LLAMA_8B, drafts=(preset("qwen3-0.6b"),)))
    assert not found.speculate
    assert "a draft needs the target's tokenizer" in found.verdict
    assert found.ranked[-1].candidate.name == "qwen3-0.6b"


def test_your_figures_replace_the_assumed_ones() -> None:
    question = replace(LLAMA_8B, drafts=(preset("llama-3.2-1b"),), acceptance={"draft": 0.9}, cost=0.01)
    draft = of(plan(question), "llama-3.2-1b")
    assert draft.first.cost == pytest.approx(0.01)
    assert draft.first.speedup > 6
    texts = {one.name: (one.value, one.source) for one in plan(question).assumptions}
    assert texts["acceptance of llama-3.2-1b"] == ("0.900", "given")
    assert texts["c of the drafts"] == ("0.01", "given")
    slow = replace(question, efficiency=Efficiency(memory=0.5))
    assert plan(slow).plain[0].seconds_per_token > plan(question).plain[0].seconds_per_token


def test_every_assumption_has_a_source_and_an_option() -> None:
    assert all(one.source and one.option for one in plan(LLAMA_8B).assumptions)
    assert {"bandwidth", "bf16 rate", "acceptance of n-grams"} <= {one.name for one in plan(LLAMA_8B).assumptions}


@pytest.mark.parametrize(
    ("milliseconds", "answer"), [(100, "met without speculation"), (4, "met with speculation"), (0.1, "not met")]
)
def test_a_latency_target_is_met_or_not(milliseconds: float, answer: str) -> None:
    latency = plan(replace(LLAMA_8B, latency_target_seconds=milliseconds / 1e3)).latency
    assert latency is not None
    assert latency.endswith(answer)


def test_a_plan_is_json() -> None:
    record = json.loads(json.dumps(plan(LLAMA_8B).record(), allow_nan=False))
    assert record["speculate"] is True
    assert record["candidates"][0]["loads"][0]["requests"] == 1
    assert record["candidates"][0]["name"] == record["chosen"]


def test_mixtures_of_experts_and_encoder_decoders_are_planned_too() -> None:
    mixture = plan(Question(preset("qwen3-30b-a3b"), device("h200"), precision("bf16"), concurrency=(1,)))
    assert mixture.ranked[0].first.scoring > 1.05  # further rows read further experts
    t5 = plan(Question(preset("t5-xxl"), device("tpu-v4"), precision("bf16"), source_tokens=100))
    assert {one.candidate.kind for one in t5.ranked} == {"draft", "ngram"}
    assert of(t5, "t5-small").first.cost < 0.02


def test_the_real_pair_is_predicted_as_its_simulation_has_it() -> None:
    # 0.5B for 1.5B, 4 bits, memory alone: alpha 0.757 at c = 0.32 gives 1.41 with two tokens.
    small = Device("two cores", 16e9, 33e9, {"int8": 1e12}, 0.0, "measured", "2025-01")
    pair = Question(preset("qwen2.5-1.5b"), small, precision("q4_k_m"), (preset("qwen2.5-0.5b"),), concurrency=(1,))
    draft = of(plan(pair), "qwen2.5-0.5b")
    assert draft.first.draft_length == 2
    assert draft.first.speedup == pytest.approx(1.41, abs=0.02)
    assert not plan(replace(pair, cost=0.57, acceptance={"draft": 0.55})).speculate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": -5}, "context must be a whole number of tokens, 1 or more, got -5"),
        ({"devices": 0}, "devices must be a whole number of devices, 1 or more, got 0"),
        ({"concurrency": ()}, "concurrency must be at least one number"),
        ({"concurrency": (0,)}, "concurrency must be a whole number of requests, 1 or more, got 0"),
        ({"latency_target_seconds": -1.0}, "latency target must be a positive number"),
        ({"cost": -0.1}, "cost must be 0 or a positive number"),
        ({"acceptance": {"draft": 1.5}}, r"acceptance of draft must be in \[0, 1\], got 1.5"),
        ({"acceptance": {"magic": 0.5}}, "no kind of drafter 'magic': known are draft, eagle, ngram"),
    ],
)
def test_bad_questions_are_one_sentence(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(LLAMA_8B, **changes)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(UsageError, match="no task 'poems': known are all, code"):
        plan(replace(LLAMA_8B, tasks=("poems",)))
