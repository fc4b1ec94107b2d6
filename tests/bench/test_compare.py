"""From a model's file to the report of its kernels, on the native engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gguf_writer import Tiny, tiny_model
from outpace.cli.app import app

pytest.importorskip("outpace._native", reason="the native engine is not built")

from outpace.bench.compare import bench_kernels
from outpace.bench.machine import NativeCeilings, engine
from outpace.errors import UsageError


@pytest.fixture(scope="module")
def long_context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "long.gguf", Tiny(context=2048))


def test_every_figure_is_positive(long_context: Path) -> None:
    report = bench_kernels(long_context, threads=1, seconds=0)
    assert all(line.seconds > 0 and line.floor_seconds > 0 for line in report.forward)
    assert min(report.bandwidth_gb_per_s, report.integer_gmac_per_s, report.prefill_tokens_per_s) > 0
    assert report.threads == 1
    assert engine() is not None


def test_the_ceilings_are_rates_of_this_machine() -> None:
    ceilings = NativeCeilings(1)
    assert ceilings.bandwidth() > 1e8
    assert ceilings.integer_rate() >= ceilings.integer_rate(wide=True) / 2 > 1e8


def test_peers_need_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--peers needs a GGUF file"):
        bench_kernels(tmp_path, peers=True)


def test_the_command_prints_a_table_or_one_json_object(long_context: Path) -> None:
    arguments = ["bench", "kernels", "--model", str(long_context), "--threads", "1", "--seconds", "0"]
    table = CliRunner().invoke(app, arguments)
    assert table.exit_code == 0
    assert "over floor" in table.stdout
    record = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert record.keys() >= {
        "forward", "weights_gb_per_s", "bandwidth_gb_per_s", "integer_gmac_per_s", "prefill_tokens_per_s", "kernel",
        "threads",
    }  # fmt: skip
    assert record["forward"][0].keys() == {"rows", "context", "seconds", "floor_seconds"}


def test_without_the_peer_nothing_is_loaded_or_measured(long_context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr("outpace.bench.compare.load_native", None)
    result = CliRunner().invoke(app, ["bench", "kernels", "--model", str(long_context), "--peers"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("needs the extra 'peers': pip install 'outpace[peers]'\n")


@pytest.mark.parametrize("seconds", ["-1", "nan", "1e9"])
def test_an_impossible_time_is_refused(seconds: str) -> None:
    result = CliRunner().invoke(app, ["bench", "kernels", f"--seconds={seconds}"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "seconds must be in [0, 3600]" in result.stderr
