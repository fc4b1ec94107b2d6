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


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("eagle", ["--threads", "0"], "threads must be in [1, 1024], got 0"),
        ("distill", ["--threads", "0", "--draft", "d.gguf"], "threads must be in [1, 1024], got 0"),
        ("medusa", ["--seed", "-1"], "seed must be in [0, 2^63), got -1"),
        ("eagle", ["--seed", str(1 << 63)], f"seed must be in [0, 2^63), got {1 << 63}"),
        ("distill", ["--seed", "-1", "--draft", "d.gguf"], "seed must be in [0, 2^63), got -1"),
    ],
)
def test_a_number_that_pytorch_would_choke_on_is_refused(tmp_path, command, options, message):
    pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    code, _, words = call("train", command, "--data", tmp_path, "--out", tmp_path / "o", *options)
    assert (code, words) == (2, f"outpace: error: {message}\n")


def test_a_corpus_of_a_seed_that_numpy_would_choke_on_is_refused(tmp_path, tiny_llama):
    code, _, words = call(
        "train", "data", "-m", tiny_llama, "--prompts", tmp_path / "p", "--out", tmp_path / "d", "--seed", "-1"
    )
    assert (code, words) == (2, "outpace: error: seed must be in [0, 2^63), got -1\n")


def test_without_torch_the_error_names_the_command_that_installs_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, words = call("train", "eagle", "--data", tmp_path, "--out", tmp_path / "h.safetensors")
    assert code == 1
    assert "pip install 'outpace[train]'" in words


@pytest.mark.parametrize("ending", [".json", ".checkpoint"])
def test_a_head_that_its_own_record_would_overwrite_is_refused(tmp_path, ending):
    out = tmp_path / f"head{ending}"
    code, _, words = call("train", "eagle", "--data", tmp_path, "--out", out)
    line = f"--out {out}: {ending} is the ending of what is put beside it: name another file"
    assert (code, words) == (2, f"outpace: error: {line}\n")


def test_a_file_where_a_folder_must_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, words = call("train", "eagle", "--data", tmp_path, "--out", tmp_path / "file" / "h.safetensors")
    assert (code, words.count("\n")) == (2, 1)
    assert words.endswith(f"{tmp_path}/file is a file: name a folder\n")


def test_a_log_has_one_line_for_the_end(tmp_path, tiny_llama):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Number {n}"}) + "\n" for n in range(8)))
    code, _, words = call(
        "train", "data", "-m", tiny_llama, "--prompts", prompts, "--out", tmp_path / "d", "--tokens", 5,
        "--max-tokens", 40, "--threads", 1,
    )  # fmt: skip
    assert code == 0, words
    assert len(words.splitlines()) <= 3, words  # the beginning, the end, the sum
    code, _, words = call(
        "train", "data", "-m", tiny_llama, "--prompts", prompts, "--out", tmp_path / "d", "--tokens", 100_000,
        "--max-tokens", 40, "--threads", 1,
    )  # fmt: skip
    assert code == 0, words
    assert "the prompts are used up before 100,000 tokens: more of them go into another folder\n" in words
