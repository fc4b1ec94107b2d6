"""`outpace plan`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli import vllm_check
from outpace.cli.app import app

PAIR = ["--target", "llama-3.1-8b", "--device", "h100"]
NUMBERS = ["--acceptance", "0.8", "--cost", "0.05"]
TINY = {
    "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16, "intermediate_size": 8192,
    "vocab_size": 128256,
}  # fmt: skip


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def mistake(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 2, result.stdout
    assert result.stdout == ""
    assert result.stderr.startswith("outpace: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_verdict_ranking_memory_assumptions_and_settings_are_shown() -> None:
    text = run(*PAIR)
    assert text.splitlines()[0] == "llama-3.1-8b (8.03B, bf16) on h100, context 1,024, tasks all"
    assert "Speculate with EAGLE-class head, 6 tokens a draft" in text
    assert "llama-3.2-1b breaks the rule of thumb: 6.5 times smaller, not 10 to 20" in text
    assert "with llama-3.2-1b: 2.47 GB" in text
    assert "lost" in text
    assert "NVIDIA H100 Tensor Core GPU datasheet" in text
    assert "vllm serve llama-3.1-8b --speculative-config" in text


def test_the_table_fits_a_page() -> None:
    table = run(*PAIR).split("\n\n")[2]
    assert max(len(line) for line in table.splitlines()) <= 100
    assert "…" not in table


def test_do_not_speculate_is_said_plainly_with_settings_for_plain_decoding() -> None:
    text = run(*PAIR, "--concurrency", "256", "--context", "128")
    assert "Do not speculate at 256 at once and a context of 128" in text
    assert "Settings for plain decoding" in text
    assert "Speculate with" in run(*PAIR, "--concurrency", "256", "--context", "1000")


def test_json_is_one_object_with_settings() -> None:
    record = json.loads(run(*PAIR, "--draft", "llama-3.2-1b", "--acceptance", "0.7", "--json"))
    assert record["speculate"] is True
    assert record["chosen"] == "llama-3.2-1b"
    assert [one["engine"] for one in record["settings"]][1] == "vLLM"
    assert record["settings"][1]["checked"]


def test_two_numbers_are_enough() -> None:
    text = run("--acceptance", "0.8", "--cost", "0.05")
    assert "Speculate with 8 tokens a draft" in text
    assert "ceiling 1 / (1 - alpha): 5.00 tokens a pass" in text
    record = json.loads(run("--acceptance", "0.1", "--cost", "0.2", "--json"))
    assert record["speculate"] is False
    assert record["verdict"].startswith("do not speculate: c = 0.2 is not below alpha = 0.1")


def test_a_config_and_a_device_by_numbers(tmp_path: Path) -> None:
    config = dict(TINY)
    (tmp_path / "config.json").write_text(json.dumps(config))
    numbers = ["--device", "memory=24,bandwidth=1000,rate=165", "--json"]
    record = json.loads(run("--target", str(tmp_path), "--draft", "llama-3.2-1b", *numbers))
    assert record["device"] == "your device"
    del config["vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "lacks 'vocab_size'" in mistake("--target", str(tmp_path), *numbers)
    (tmp_path / "config.json").write_text("{")
    assert "is not JSON" in mistake("--target", str(tmp_path), *numbers)
    (tmp_path / "config.json").write_text("[]")
    assert "must hold an object" in mistake("--target", str(tmp_path), *numbers)


def test_a_config_comes_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repository: str, file: str, size: int, sink: BytesIO, progress: object) -> None:
        assert (repository, file, size) == ("owner/llama-tiny", "config.json", 0)
        sink.write(json.dumps(TINY).encode())

    monkeypatch.setattr("outpace.models.hub.download", download)
    record = json.loads(run("--target", "owner/llama-tiny", "--device", "l40s", "--json"))
    assert record["target"] == "owner/llama-tiny"
    assert "vllm serve owner/llama-tiny" in record["settings"][1]["text"]


def test_an_endless_config_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repository: str, file: str, size: int, sink: BytesIO, progress: Callable[[int, int], None]) -> None:
        for done in range(1, 1 << 20):
            sink.write(bytes(1 << 20))
            progress(done << 20, done << 20)

    monkeypatch.setattr("outpace.models.hub.download", download)
    assert "must have at most" in mistake("--target", "owner/name", "--device", "l40s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "llama-3.1-8b", "--device", "h1000"], "no device 'h1000': did you mean h100"),
        (["--target", "lama", "--device", "h100"], "no model preset 'lama'"),
        (["--target", "no.json", "--device", "h100"], "there is no file no.json"),
        (["--target", "llama-3.1-8b"], "--target needs --device"),
        ([*PAIR, "--context", "-5"], "context must be a whole number of tokens, 1 or more, got -5"),
        ([*PAIR, "--concurrency", "1,x"], "--concurrency must be whole numbers between commas"),
        ([*PAIR, "--dtype", "fp7"], "no precision 'fp7'"),
        ([*PAIR, "--acceptance", "much"], "--acceptance must be a number, got 'much'"),
        ([*PAIR, "--acceptance", "draft=0.5,0.3"], "--acceptance must be name=number between commas"),
        ([*PAIR, "--slope", "0.1"], "--slope is for --acceptance and --cost alone"),
        ([*PAIR, "--reserve", "-1"], "--reserve must be 0 or a positive number of GB, got -1.0"),
        ([*PAIR, "--pass-ms", "nan"], "--pass-ms must be 0 or a positive number of milliseconds, got nan"),
        ([*PAIR, "--latency-target", "-1"], "--latency-target must be a positive number of milliseconds, got -1.0"),
        ([*PAIR, "--count", "0"], "--count must be a whole number of devices, 1 or more, got 0"),
        ([*PAIR, "--source-tokens", "7"], "--source-tokens is for an encoder-decoder, which llama-3.1-8b is not"),
        ([*PAIR, "--acceptance", "draft=0.5,draft=0.6"], "--acceptance names draft twice: leave one of them out"),
        (
            ["--target", "llama-3.1-8b", "--device", "memory=24,bandwidth=-1,rate=3"],
            "bandwidth of --device must be a positive number of GB/s, got -1.0",
        ),
        (["--target", "llama-3.1-8b", "--device", "memory=24"], "--device by numbers is memory=GB"),
        (["--draft", "llama-3.2-1b"], "--draft needs --target MODEL"),
        ([*NUMBERS, "--dtype", "int4"], "--dtype needs --target MODEL"),
        ([*NUMBERS, "--count", "2"], "--count needs --target MODEL"),
        ([*NUMBERS, "--context", "8"], "--context needs --target MODEL"),
        ([*NUMBERS, "--source-tokens", "8"], "--source-tokens needs --target MODEL"),
        ([*NUMBERS, "--concurrency", "4"], "--concurrency needs --target MODEL"),
        ([*NUMBERS, "--tasks", "code"], "--tasks needs --target MODEL"),
        ([*NUMBERS, "--memory-efficiency", "0.5"], "--memory-efficiency needs --target MODEL"),
        ([*NUMBERS, "--compute-efficiency", "0.5"], "--compute-efficiency needs --target MODEL"),
        ([*NUMBERS, "--pass-ms", "3"], "--pass-ms needs --target MODEL"),
        ([*NUMBERS, "--reserve", "3"], "--reserve needs --target MODEL"),
        (["--acceptance", "0.8"], "or --acceptance X and --cost C alone"),
        ([], "give --target MODEL and --device NAME"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str) -> None:
    assert message in mistake(*arguments)


def test_without_vllm_its_settings_say_that_they_were_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> str:
        raise vllm_check.PackageNotFoundError

    monkeypatch.setattr(vllm_check, "version", absent)
    assert vllm_check.checked_by_vllm({"method": "ngram"}) == "not checked: vLLM is not installed here"
    assert vllm_check.checked_by_vllm(None) == "nothing to check"


def test_vllm_is_asked_for_its_own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "vllm" / "config"
    package.mkdir(parents=True)
    (tmp_path / "vllm" / "__init__.py").write_text("print('INFO: a line on stdout')\n")
    (package / "__init__.py").write_text("from vllm.config.speculative import SpeculativeConfig\n")
    (package / "speculative.py").write_text(
        "import dataclasses, typing\nSpeculativeMethod = typing.Literal['ngram', typing.Literal['eagle3']]\n"
        "@dataclasses.dataclass\nclass SpeculativeConfig:\n    method: str\n    num_speculative_tokens: int\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(vllm_check, "version", lambda _: "9.9")
    known = vllm_check.checked_by_vllm({"method": "eagle3", "num_speculative_tokens": 3})
    assert known == "checked: vLLM 9.9 knows this method and these keys"
    unknown = vllm_check.checked_by_vllm({"method": "magic", "tokens": 3})
    assert unknown == "refused: vLLM 9.9 does not know tokens, method magic"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "could not be asked" in vllm_check.checked_by_vllm({"method": "ngram"})
