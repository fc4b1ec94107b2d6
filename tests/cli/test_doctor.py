"""`outpace doctor`, with the native engine and without."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from outpace.cli.app import app


def test_it_shows_processor_kernels_ceilings_versions_and_models() -> None:
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    names = [line.split("  ")[0] for line in result.stdout.splitlines()]
    assert names == [
        "processor", "cores", "NUMA nodes", "threads", "memory", "features", "kernels", "bandwidth", "integer rate",
        "cache", "models", "versions",
    ]  # fmt: skip


def test_json_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    monkeypatch.setenv("OUTPACE_KERNEL", "portable")
    record = json.loads(CliRunner().invoke(app, ["doctor", "--json", "--threads", "1"]).stdout)
    assert (record["kernel"], record["kernel_forced"], record["threads"]) == ("portable", "portable", 1)
    assert record["bandwidth_gb_per_s"] > 0
    assert record["integer_gmac_per_s"] > 0


def test_a_forced_kernel_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("outpace._native", reason="the native engine is not built")
    monkeypatch.setenv("OUTPACE_KERNEL", "warp")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert result.stderr.startswith("outpace: error: OUTPACE_KERNEL: kernel must be one that this processor runs (")


def test_without_the_native_engine_one_sentence_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "outpace._native", None)
    monkeypatch.delattr("outpace._native", raising=False)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "native engine not built: install a C++20 compiler, then run pip install" in result.stdout
    record = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert (record["native_engine"], record["kernel"], record["bandwidth_gb_per_s"]) == (False, None, None)


@pytest.mark.parametrize("threads", ["0", "-1", "5000"])
def test_threads_out_of_range_are_refused(threads: str) -> None:
    result = CliRunner().invoke(app, ["doctor", f"--threads={threads}", "--no-measure"])
    assert result.exit_code == 2
    assert result.stderr == f"outpace: error: threads must be in [1, 1024], got {threads}\n"


def test_a_pair_is_examined_cause_by_cause(run: Callable[..., Any]) -> None:
    done = run("doctor", "--no-measure", "--model", "target.gguf", "--draft", "draft.gguf", "--json")
    assert done.exit_code == 0, done.stderr
    findings = json.loads(done.stdout)["drafts"]
    assert [f["about"] for f in findings] == ["acceptance", "draft cost", "scoring", "speed-up", "load", "text"]


def test_a_draft_without_its_target_is_refused(run: Callable[..., Any]) -> None:
    done = run("doctor", "--no-measure", "--draft", "draft.gguf")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "--draft needs --model MODEL" in done.stderr
