from __future__ import annotations

import pytest

from outpace.theory.acceptance import KINDS, assumed, known_tasks
from outpace.theory.candidates import candidates, family, head_for, rule_of_thumb, vocabulary_problem
from outpace.theory.shape import preset
from outpace.theory.speedup import Choice, acceptance_from_tokens_per_step

LLAMA_8B, LLAMA_70B, LLAMA_1B = preset("llama-3.1-8b"), preset("llama-3.1-70b"), preset("llama-3.2-1b")


@pytest.mark.parametrize("kind", KINDS)
def test_every_assumed_acceptance_has_a_source(kind: str) -> None:
    for task in known_tasks():
        one = assumed(kind, [task])
        assert 0 < one.value < 1
        assert one.source


def test_tasks_are_averaged_and_gaps_are_said() -> None:
    assert assumed("draft", ["code", "maths"]).value == pytest.approx((0.933 + 0.820) / 2)
    assert assumed("eagle", ["code"]).source.endswith("(no figure for code)")


@pytest.mark.parametrize(("task", "tokens"), [("all", 1.75), ("summarisation", 2.66), ("rag", 1.86), ("qa", 1.19)])
def test_prompt_lookup_gives_the_tokens_that_spec_bench_measured(task: str, tokens: float) -> None:
    assert assumed("ngram", [task]).value == pytest.approx(acceptance_from_tokens_per_step(tokens, 10), abs=1e-3)


def test_smaller_drafts_agree_less_as_published() -> None:
    at = {ratio: assumed("draft", ["all"], ratio).value for ratio in (3.1, 17.0, 1370.0)}
    assert at[3.1] == pytest.approx(0.757)
    assert at[17.0] - at[1370.0] == pytest.approx(0.74 - 0.57, abs=0.02)  # LaMDA 8B and 100M for 137B
    assert assumed("draft", ["all"], 1e-9).value == 1.0


def test_without_a_named_draft_the_smaller_models_of_the_family_are_weighed() -> None:
    names = [one.name for one in candidates(LLAMA_8B, [], ["all"], {})]
    assert names == ["llama-3.2-1b", "llama-3.2-3b", "EAGLE-class head", "n-grams"]


def test_named_drafts_replace_the_family() -> None:
    found = candidates(LLAMA_70B, [LLAMA_1B], ["all"], {"ngram": 0.5})
    assert [(one.name, one.named) for one in found] == [
        ("llama-3.2-1b", True),
        ("EAGLE-class head", False),
        ("n-grams", False),
    ]
    assert found[-1].acceptance.value == 0.5


def test_a_head_has_the_size_that_published_ones_have() -> None:
    assert head_for(LLAMA_8B).parameters == pytest.approx(4.2e8, rel=0.05)  # EAGLE-3 for Llama 3.1 8B
    assert head_for(preset("qwen3-30b-a3b")).parameters < 2e8


def test_padded_vocabularies_are_the_same_and_others_are_not() -> None:
    assert vocabulary_problem(preset("qwen2.5-7b"), preset("qwen2.5-0.5b")) is None
    assert "a draft needs the target's tokenizer" in str(vocabulary_problem(LLAMA_8B, preset("qwen3-0.6b")))
    assert "not both encoder-decoders" in str(vocabulary_problem(preset("t5-xxl"), LLAMA_8B))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", "llama3"),
        ("meta-llama/Llama-3.2-1B", "llama3"),
        ("qwen2.5-0.5b", "qwen2"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("mistral-7b-v0.1", "mistral"),
        ("mixtral-8x7b", "mistral"),
        ("gemma-2-27b", "gemma2"),
        ("smollm2-135m", "smollm2"),
        ("t5-small", "t5"),
        ("42", "42"),
    ],
)
def test_families_are_read_from_names(name: str, expected: str) -> None:
    assert family(name) == expected


def test_another_generation_is_not_proposed_and_said_to_be_another_family() -> None:
    names = [one.name for one in candidates(preset("qwen2.5-7b"), [], ["all"], {}) if one.kind == "draft"]
    assert names == ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b"]
    line = str(rule_of_thumb(preset("qwen2.5-7b"), preset("qwen3-0.6b"), Choice(4, 3.0, 2.2), 0.1))
    assert "another family by its name" in line


def test_a_draft_that_keeps_the_rule_of_thumb_is_not_mentioned() -> None:
    assert rule_of_thumb(preset("t5-xxl"), preset("t5-large"), Choice(4, 2.7, 2.1), 0.08) is None


def test_a_draft_that_breaks_the_rule_of_thumb_is_told_with_c_and_the_gain() -> None:
    line = str(rule_of_thumb(LLAMA_8B, LLAMA_1B, Choice(2, 2.3, 1.7), 0.165))
    assert "6.5 times smaller, not 10 to 20" in line
    assert "drafts of 2, not 3 to 5" in line
    assert "1.70 times as fast, not 2 to 3" in line
    assert "(c = 0.165, predicted 1.70 times plain)" in line
    assert "another tokenizer" in str(rule_of_thumb(LLAMA_8B, preset("qwen3-0.6b"), Choice(0, 1.0, 1.0), 0.1))
