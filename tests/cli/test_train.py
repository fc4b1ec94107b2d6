"""`outpace train`: the same work from the command line, and what it says when it cannot be done."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from outpace.cli.app import app


def call(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_data_and_training_from_the_command_line(tmp_path, tiny_llama):
    pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Number {n}"}) + "\n" for n in range(60)))
    data, out = tmp_path / "data", tmp_path / "head.safetensors"
    code, _, words = call(
        "train", "data", "-m", tiny_llama, "--prompts", prompts, "--out", data, "--tokens", 900,
        "--max-tokens", 20, "--threads", 1,
    )  # fmt: skip
    assert code == 0, words
    assert "generated tokens" in words
    code, _, words = call(
        "train", "eagle", "-m", tiny_llama, "--data", data, "--out", out, "--vocab", 64, "--epochs", 1,
        "--bits", 4, "--threads", 1,
    )  # fmt: skip
    assert code == 0, words
    assert "accepted on held-out text, by position" in words
    assert out.exists()


def test_mistakes_are_one_line(tmp_path, tiny_llama):
    code, _, words = call(
        "train", "data", "-m", tiny_llama, "--prompts", tmp_path / "none.jsonl", "--out", tmp_path / "d"
    )
    assert code == 2
    assert words.count("\n") == 1
    assert "none.jsonl" in words
    pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    code, _, words = call(
        "train", "eagle", "-m", tiny_llama, "--data", tmp_path / "none", "--out", tmp_path / "h.safetensors"
    )
    assert code == 2
    assert "no corpus here" in words


def test_without_torch_the_error_names_the_command_that_installs_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, words = call("train", "eagle", "--data", tmp_path, "--out", tmp_path / "h.safetensors")
    assert code == 1
    assert "pip install 'outpace[train]'" in words
