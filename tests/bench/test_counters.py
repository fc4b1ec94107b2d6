"""The counters of speculation as vLLM, its older versions and outpace serve write them."""

from __future__ import annotations

import pytest

from outpace.bench.counters import Counters, read_counters

LABELS = '{engine="0",model_name="big"}'
VLLM = f"""# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{LABELS} 100.0
vllm:spec_decode_num_drafts_created{LABELS} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{LABELS} 300.0
vllm:spec_decode_num_accepted_tokens_total{LABELS} 1.5e+02
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="big",position="0"}} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="big",position="2"}} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="big",position="1"}} 50.0
vllm:generation_tokens_total{LABELS} 250.0
"""


def test_vllms_counters_are_read() -> None:
    found = read_counters(VLLM)
    assert found == Counters(100, 300, 150, (80, 50, 20))
    assert found.acceptance_rate == 0.5
    assert found.tokens_per_draft == 2.5
    assert found.conditional == pytest.approx((0.8, 0.625, 0.4))


def test_engines_are_added_and_names_without_total_count() -> None:
    text = 'vllm:spec_decode_num_draft_tokens{engine="0"} 3\nvllm:spec_decode_num_draft_tokens{engine="1"} 4\n'
    assert read_counters(text) == Counters(0, 7, 0)


@pytest.mark.parametrize("text", ["", "<html>", "vllm:generation_tokens_total 3", "spec_decode_num_drafts_total 3"])
def test_without_counters_there_is_nothing(text: str) -> None:
    assert read_counters(text) is None


def test_a_hostile_position_makes_no_list() -> None:
    text = VLLM + 'x:spec_decode_num_accepted_tokens_per_pos_total{position="99999999999"} 1.0\n'
    assert read_counters(text) == read_counters(VLLM)


def test_what_was_counted_before_is_taken_away() -> None:
    after = Counters(10, 30, 12, (8, 4))
    assert after.since(Counters(4, 12, 5, (3,))) == Counters(6, 18, 7, (5, 4))
    nothing = after.since(after)
    assert (nothing.acceptance_rate, nothing.tokens_per_draft, nothing.conditional) == (None, None, ())
