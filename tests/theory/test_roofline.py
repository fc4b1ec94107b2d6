from __future__ import annotations

import re

import pytest

from outpace.errors import UsageError
from outpace.theory import roofline
from outpace.theory.roofline import IDEAL, Deployment, Device, Efficiency, device, precision
from outpace.theory.shape import preset

H100, BF16 = device("h100"), precision("bf16")
LLAMA_8B = Deployment(preset("llama-3.1-8b"), H100, BF16)
LLAMA_1B = Deployment(preset("llama-3.2-1b"), H100, BF16)


def test_every_device_states_its_source_and_date() -> None:
    for known in roofline.devices().values():
        assert known.source
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", known.date)
        assert known.memory_bytes >= 1e10
        assert all(rate > 0 for rate in known.flop_per_s.values())
        assert known.flop_per_s.get("int8", 1e99) >= known.flop_per_s["bf16"]


@pytest.mark.parametrize(
    "name", ["h100", "h200", "b200", "a100", "l40s", "rtx-4090", "rtx-5090", "mi300x", "tpu-v4", "tpu-v5e"]
)
def test_the_usual_accelerators_are_known(name: str) -> None:
    assert device(name.upper()).name == name


def test_one_row_takes_the_time_to_read_weights_and_cache() -> None:
    ideal = Deployment(preset("llama-3.1-70b"), device("h200"), precision("fp8"), efficiency=IDEAL)
    read = 69.5e9 + 327_680 / 2 * 2 * 1001
    assert ideal.seconds(1, 1, 1000) == pytest.approx(read / 4.8e12, rel=1e-3)


def test_the_embedded_model_on_a_small_machine_reaches_its_limit() -> None:
    # 84 MB at 73 GB/s: 870 passes a second.
    small = Device("two cores", 8e9, 73e9, {"int8": 1e12}, 0.0, "measured", "2025-01")
    limit = Deployment(preset("smollm2-135m"), small, precision("q4_1"), efficiency=IDEAL)
    assert 1 / limit.seconds(1, 1, 0) == pytest.approx(870, rel=0.01)


def test_draft_cost_by_bytes_is_the_ratio_of_the_models() -> None:
    assert roofline.cost_by_bytes(8.03e9, 70.55e9) == pytest.approx(0.114, abs=5e-4)


def test_a_dense_model_is_bandwidth_bound_up_to_the_balance_of_the_device() -> None:
    ideal = Deployment(preset("llama-3.1-8b"), H100, BF16, efficiency=IDEAL)
    assert roofline.bandwidth_bound_rows(ideal) == int(2.0 * 989.4e12 / (2 * 3350e9))
    assert ideal.forward(1, 295, 0).bandwidth_bound
    assert not ideal.forward(1, 296, 0).bandwidth_bound


def test_rows_are_nearly_free_alone_and_dear_in_a_batch() -> None:
    assert LLAMA_8B.seconds(1, 5, 128) / LLAMA_8B.seconds(1, 1, 128) < 1.01
    assert LLAMA_8B.seconds(256, 2, 128) / LLAMA_8B.seconds(256, 1, 128) > 1.7


def test_experts_make_the_first_rows_dear_and_leave_more_of_them_bandwidth_bound() -> None:
    mixture = Deployment(preset("mixtral-8x7b"), device("h200"), precision("fp8"))
    assert mixture.seconds(1, 5, 128) / mixture.seconds(1, 1, 128) > 1.5
    dense = Deployment(preset("llama-3.1-8b"), device("h200"), precision("fp8"))
    assert roofline.bandwidth_bound_rows(mixture) > 2 * roofline.bandwidth_bound_rows(dense)


@pytest.mark.parametrize("draft", [LLAMA_1B, None], ids=["1B draft", "n-grams"])
@pytest.mark.parametrize("alpha", [0.6, 0.7, 0.8])
def test_an_8b_at_batch_256_speculates_at_context_1000_and_not_at_128(draft: Deployment | None, alpha: float) -> None:
    def gain(context: int) -> float:
        costs = roofline.step_costs(LLAMA_8B, draft, 256, context)
        return roofline.speedup_by_batch([alpha] * 8, lambda _: costs, [256])[256].speedup

    assert gain(128) < 1.01
    assert gain(1000) > 1.02
    assert gain(1000) > gain(128)


def test_the_last_paying_batch_is_the_edge() -> None:
    def costs(batch: int) -> roofline.StepCosts:
        return roofline.step_costs(LLAMA_8B, LLAMA_1B, batch, 128)

    edge = roofline.last_paying_batch([0.7] * 8, costs)
    assert edge is not None
    gains = roofline.speedup_by_batch([0.7] * 8, costs, [edge, edge + 1])
    assert gains[edge].speedup >= 1.05 > gains[edge + 1].speedup
    assert 64 < edge < 256


def test_speculation_pays_at_every_batch_where_caches_outgrow_weights_and_at_none_where_the_draft_is_dear() -> None:
    long = roofline.last_paying_batch([0.7] * 8, lambda batch: roofline.step_costs(LLAMA_8B, LLAMA_1B, batch, 8000))
    dear = roofline.last_paying_batch([0.7] * 8, lambda batch: roofline.step_costs(LLAMA_8B, LLAMA_8B, batch, 128))
    assert (long, dear) == (None, 0)


def test_two_devices_are_faster_than_one_and_slower_than_twice() -> None:
    one = Deployment(preset("llama-3.1-70b"), device("h200"), precision("fp8"))
    two = Deployment(preset("llama-3.1-70b"), device("h200"), precision("fp8"), devices=2)
    assert one.seconds(1, 1, 128) / 2 < two.seconds(1, 1, 128) < one.seconds(1, 1, 128)
    assert two.forward(1, 1, 128).link_seconds > 80 * 2 * 10e-6


def test_devices_beyond_the_key_value_heads_read_copies_of_the_cache() -> None:
    sixteen = Deployment(preset("llama-3.1-70b"), device("h200"), precision("fp8"), devices=16)
    eight = Deployment(preset("llama-3.1-70b"), device("h200"), precision("fp8"), devices=8)
    assert sixteen.forward(1, 1, 9000).cache_seconds == pytest.approx(eight.forward(1, 1, 9000).cache_seconds)


def test_a_prefill_is_bound_by_arithmetic() -> None:
    prefill = LLAMA_8B.forward(1, 8192, 0)
    assert not prefill.bandwidth_bound
    assert prefill.seconds == pytest.approx(2 * 7.5e9 * 8192 / (989.4e12 * 0.65), rel=0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: device("h1000"), "no device 'h1000': did you mean h100"),
        (lambda: precision("fp7"), "no precision 'fp7': known are bf16"),
        (lambda: LLAMA_8B.seconds(0, 1, 128), "batch must be a whole number of requests, 1 or more, got 0"),
        (lambda: LLAMA_8B.seconds(1, 1, -5), "context must be a whole number of tokens, 0 or more, got -5"),
        (lambda: Deployment(LLAMA_8B.shape, device("a100"), precision("fp8")).seconds(1, 1, 1), "a100 has no fp8"),
        (lambda: Deployment(LLAMA_8B.shape, device("apple-m4"), BF16, devices=2), "no link to others"),
        (lambda: Device("mine", 8e9, 0.0, {}, 0.0, "", ""), "bytes_per_s of mine must be a positive number"),
        (lambda: Device("mine", 8e9, 1e9, {"int8": -1.0}, 0.0, "", ""), "int8 flop_per_s of mine must be"),
        (lambda: Efficiency(memory=0.0), r"memory efficiency must be in \(0, 1\], got 0.0"),
        (lambda: roofline.cost_by_bytes(1.0, 0.0), "target_bytes must be a positive number of bytes, got 0.0"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
