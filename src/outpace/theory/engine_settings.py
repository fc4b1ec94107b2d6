"""A plan's drafter and draft length as settings: of this engine and of four others, as their documents name them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

PLACEHOLDER_HEAD = "HEAD"
"""Stands for the drafting head, which must be trained for the target: a plan knows no file of one."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to set. kind: "draft", "eagle", "ngram", "suffix" or "none"; target, draft: names as they were given."""

    target: str
    kind: str
    draft: str | None = None
    draft_length: int = 0
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """A command or file for one engine. versions: those whose documents name these options."""

    engine: str
    versions: str
    text: str


def all_settings(chosen: Chosen) -> tuple[Settings, ...]:
    """Returns the settings of every engine: outpace, vLLM, llama.cpp, SGLang, TensorRT-LLM."""
    return (
        Settings("outpace", "this one", _outpace(chosen)),
        Settings("vLLM", "0.15 and later", shlex.join(vllm_words(chosen))),
        Settings("llama.cpp", "builds b10035 and later", _llama_cpp(chosen)),
        Settings("SGLang", "its documentation of 2026", _sglang(chosen)),
        Settings("TensorRT-LLM", "1.4, in the file of trtllm-serve --config", _tensorrt_llm(chosen)),
    )


def vllm_config(chosen: Chosen) -> dict[str, Any] | None:
    """Returns the object for vLLM's --speculative-config; None for plain decoding."""
    length = {"num_speculative_tokens": chosen.draft_length}
    if chosen.kind == "draft":
        return {"method": "draft_model", "model": chosen.draft} | length
    if chosen.kind == "eagle":
        return {"method": "eagle3", "model": PLACEHOLDER_HEAD} | length
    if chosen.kind == "ngram":
        return {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5} | length
    if chosen.kind == "suffix":
        return {"method": "suffix"} | length
    return None


def _outpace(chosen: Chosen) -> str:
    words = ["outpace", "generate", "--model", chosen.target]
    drafters = {"draft": "model", "ngram": "suffix", "eagle": "eagle"}
    if chosen.kind not in drafters:
        return shlex.join([*words, "--no-speculation"])
    if chosen.kind == "draft":
        words += ["--draft", str(chosen.draft)]
    words += ["--drafter", drafters[chosen.kind], "--draft-length", str(chosen.draft_length)]
    # A head is trained with `outpace train eagle`, and found by the file or folder that this variable names.
    return shlex.join(words) if chosen.kind != "eagle" else f"OUTPACE_HEADS={PLACEHOLDER_HEAD} {shlex.join(words)}"


def vllm_words(chosen: Chosen) -> list[str]:
    """Returns vLLM's command, word by word."""
    words = ["vllm", "serve", chosen.target]
    if chosen.devices > 1:
        words += ["--tensor-parallel-size", str(chosen.devices)]
    config = vllm_config(chosen)
    if config is not None:
        words += ["--speculative-config", json.dumps(config)]
    return words


def _llama_cpp(chosen: Chosen) -> str:
    words, length = ["llama-server", "--model", chosen.target], str(chosen.draft_length)
    if chosen.kind == "draft":
        words += ["--spec-type", "draft-simple", "--model-draft", str(chosen.draft), "--spec-draft-n-max", length]
    elif chosen.kind == "eagle":
        words += ["--spec-type", "draft-eagle3", "--model-draft", PLACEHOLDER_HEAD, "--spec-draft-n-max", length]
    elif chosen.kind == "ngram":
        words += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
        words += ["--spec-ngram-simple-size-m", length]
    return shlex.join(words)


def _sglang(chosen: Chosen) -> str:
    words, length = ["python3", "-m", "sglang.launch_server", "--model-path", chosen.target], chosen.draft_length
    if chosen.devices > 1:
        words += ["--tp-size", str(chosen.devices)]
    if chosen.kind in ("draft", "eagle"):
        draft = ("STANDALONE", str(chosen.draft)) if chosen.kind == "draft" else ("EAGLE3", PLACEHOLDER_HEAD)
        words += ["--speculative-algorithm", draft[0], "--speculative-draft-model-path", draft[1]]
        words += ["--speculative-num-steps", str(length), "--speculative-eagle-topk", "1"]
        # It counts the scored tokens, the last committed one included.
        words += ["--speculative-num-draft-tokens", str(length + 1)]
    elif chosen.kind == "ngram":
        words += ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(length)]
        words += ["--speculative-ngram-max-bfs-breadth", "1"]
    return shlex.join(words)


def _tensorrt_llm(chosen: Chosen) -> str:
    kinds = {"draft": "DraftTarget", "eagle": "Eagle3", "ngram": "NGram"}
    if chosen.kind not in kinds:
        return "speculative_config: null"
    lines = [
        "speculative_config:",
        f"  decoding_type: {kinds[chosen.kind]}",
        f"  max_draft_len: {chosen.draft_length}",
    ]
    if chosen.kind == "ngram":
        lines.append("  max_matching_ngram_size: 5")
    else:
        lines.append(f"  speculative_model: {json.dumps(chosen.draft or PLACEHOLDER_HEAD)}")
    return "\n".join(lines)
