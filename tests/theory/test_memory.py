from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from outpace.errors import UsageError
from outpace.theory import memory
from outpace.theory.memory import Demand
from outpace.theory.roofline import cost_by_bytes, device, devices, precision
from outpace.theory.shape import preset, presets

FP8 = precision("fp8")
PAIR = Demand(preset("llama-3.1-70b"), FP8, context=4096, draft=preset("llama-3.1-8b"))


def test_the_papers_memory_example() -> None:
    papers = json.loads((Path(__file__).parent / "papers.json").read_text())
    note = papers["memory_example"]["note"]
    target, draft = (float(f"{number}e9") for number in re.findall(r"([\d.]+)e9", note))
    weights = memory.weight_bytes(target, 1.0) + memory.weight_bytes(draft, 1.0)
    assert weights == pytest.approx(78.6e9, abs=0.05e9)
    assert 0 < 80e9 - weights < 2e9
    assert 141e9 - weights == pytest.approx(62e9, abs=0.5e9)
    assert cost_by_bytes(draft, target) == pytest.approx(0.114, abs=0.0005)
    assert memory.weight_bytes(1e9, 1.0) == papers["worked_examples"]["draft_1B_fp8_gb"] * 1e9


def test_the_presets_give_the_same_example() -> None:
    small, large = memory.fit(PAIR, device("h100")), memory.fit(PAIR, device("h200"))
    assert small.weight_bytes + small.draft_weight_bytes == pytest.approx(78.6e9, abs=0.05e9)
    assert 0 < small.after_weights_bytes < 2e9
    assert large.after_weights_bytes == pytest.approx(62e9, abs=0.5e9)
    assert not small.fits()
    assert large.fits(16)


def test_parts_add_up_to_the_memory() -> None:
    found = memory.fit(PAIR, device("h200"))
    used = found.requests * (found.cache_bytes_per_request + found.draft_cache_bytes_per_request)
    fixed = found.weight_bytes + found.draft_weight_bytes + found.activation_bytes + found.reserve_bytes
    assert fixed + used <= found.memory_bytes < fixed + used * (found.requests + 1) / found.requests
    assert found.missing_bytes(found.requests) == 0.0
    assert found.missing_bytes(found.requests + 1) > 0.0


def test_grouped_query_cache_of_an_8b_is_128_kib_a_token() -> None:
    assert memory.cache_bytes(preset("llama-3.1-8b"), 2.0, 1024) == 1024 * 128 * 1024


def test_a_cache_is_held_in_whole_pages() -> None:
    shape = preset("llama-3.1-8b")
    assert (
        memory.cache_bytes(shape, 2.0, 1) == memory.cache_bytes(shape, 2.0, 16) < memory.cache_bytes(shape, 2.0, 17)
    )


def test_a_sliding_window_bounds_the_cache() -> None:
    window, full = preset("mistral-7b-v0.1"), preset("mistral-7b-v0.3")
    assert memory.cache_bytes(window, 2.0, 32768) == memory.cache_bytes(full, 2.0, 4096)


def test_a_draft_costs_requests_for_its_weights_and_cache() -> None:
    lost = memory.requests_lost(PAIR, device("h200"))
    alone, together = memory.fit(PAIR.without_draft, device("h200")), memory.fit(PAIR, device("h200"))
    assert lost == alone.requests - together.requests > 0


def test_a_one_billion_draft_in_fp8_adds_about_a_gigabyte() -> None:
    with_draft = memory.fit(replace(PAIR, draft=preset("llama-3.2-1b")), device("h200"))
    assert with_draft.draft_weight_bytes == pytest.approx(1.0e9, rel=0.25)


def test_a_pair_that_does_not_fit_gets_a_smaller_draft_and_a_larger_device() -> None:
    drafts = [preset(name) for name in ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b")]
    largest = memory.largest_draft(PAIR, device("h100"), drafts)
    assert largest is not None
    assert largest.name == "llama-3.2-3b"
    larger = memory.next_device(PAIR, devices())
    assert larger is not None
    assert larger.memory_bytes == min(d.memory_bytes for d in devices().values() if memory.fit(PAIR, d).fits())
    assert memory.largest_draft(PAIR, device("rtx-4090"), drafts) is None
    assert memory.next_device(replace(PAIR, target=preset("llama-3.1-405b")), {"h100": device("h100")}) is None


def test_two_devices_hold_twice_as_much_and_copies_beyond_the_key_value_heads() -> None:
    two = memory.fit(replace(PAIR, devices=2), device("h100"))
    assert two.fits(16)
    assert two.memory_bytes == 160e9
    sixteen = memory.fit(replace(PAIR, devices=16), device("h100"))
    assert sixteen.cache_bytes_per_request == 2 * two.cache_bytes_per_request


def test_every_preset_fits_somewhere_or_says_what_is_missing() -> None:
    for shape in presets().values():
        demand = Demand(shape, precision("int4"), context=1024)
        found = memory.next_device(demand, devices())
        assert found is not None or memory.fit(demand, device("mi300x")).missing_bytes() > 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(PAIR, context=-1), "context must be a whole number of tokens, 1 or more, got -1"),
        (lambda: replace(PAIR, devices=0), "devices must be a whole number of devices, 1 or more, got 0"),
        (lambda: replace(PAIR, reserve_bytes=-1.0), "reserve_bytes must be 0 or a positive number of bytes"),
        (lambda: memory.weight_bytes(0.0, 1.0), "parameters must be a positive number of parameters, got 0.0"),
        (lambda: memory.requests_lost(PAIR.without_draft, device("h200")), "a demand without a draft"),
        (lambda: memory.fit(PAIR, device("h200")).fits(0), "requests must be a whole number of requests, 1 or more"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
