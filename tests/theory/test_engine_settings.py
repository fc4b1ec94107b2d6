from __future__ import annotations

import json
import shlex

import pytest

from outpace.registry import DRAFTERS
from outpace.theory.engine_settings import Chosen, all_settings, vllm_config

DRAFT = Chosen("big model", "draft", "small", 4, devices=2)
NGRAM = Chosen("big", "ngram", None, 5)
HEAD = Chosen("big", "eagle", None, 6)
PLAIN = Chosen("big", "none")


def texts(chosen: Chosen) -> dict[str, str]:
    return {one.engine: one.text for one in all_settings(chosen)}


@pytest.mark.parametrize("chosen", [DRAFT, NGRAM, HEAD, PLAIN], ids=lambda chosen: chosen.kind)
def test_every_engine_has_settings_and_the_versions_they_are_for(chosen: Chosen) -> None:
    found = all_settings(chosen)
    assert [one.engine for one in found] == ["outpace", "vLLM", "llama.cpp", "SGLang", "TensorRT-LLM"]
    assert all(one.versions and one.text for one in found)


def test_what_vllm_is_given_is_one_json_argument() -> None:
    words = shlex.split(texts(DRAFT)["vLLM"])
    assert words[:5] == ["vllm", "serve", "big model", "--tensor-parallel-size", "2"]
    assert json.loads(words[words.index("--speculative-config") + 1]) == vllm_config(DRAFT)
    assert vllm_config(DRAFT) == {"method": "draft_model", "model": "small", "num_speculative_tokens": 4}
    assert vllm_config(PLAIN) is None


def test_sglang_counts_the_last_committed_token_among_those_it_scores() -> None:
    words = shlex.split(texts(DRAFT)["SGLang"])
    assert words[words.index("--speculative-num-steps") + 1] == "4"
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "5"


def test_plain_decoding_sets_nothing() -> None:
    assert texts(PLAIN)["vLLM"] == "vllm serve big"
    assert texts(PLAIN)["outpace"].endswith("--no-speculation")
    assert "spec" not in texts(PLAIN)["llama.cpp"]


def test_our_own_settings_are_accepted_by_our_own_command() -> None:
    from typer.main import get_command

    from outpace.cli.app import app

    generate = get_command(app).commands["generate"]  # type: ignore[attr-defined]
    for chosen in (DRAFT, NGRAM, HEAD, PLAIN):
        words = shlex.split(texts(chosen)["outpace"].removeprefix("OUTPACE_HEADS=HEAD "))
        assert words[:2] == ["outpace", "generate"]
        named = generate.make_context("generate", [*words[2:], "a prompt"]).params["drafter"]
        assert named in ("auto", *DRAFTERS.names())


def test_a_head_of_ours_is_named_by_its_file() -> None:
    assert texts(HEAD)["outpace"].startswith("OUTPACE_HEADS=HEAD outpace generate --model big --drafter eagle ")
