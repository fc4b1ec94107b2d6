"""The script for a GPU, at a tiny size: the acceptance rate is what was constructed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

from taped import Tape


def test_tokens_a_step_follow_the_formula(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
    script = importlib.import_module("gpu_check")
    arguments = ["--size", "tiny", "--device", "cpu", "--dtype", "float32", "--threads", "1", "--tokens", "300"]
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *arguments, "--alpha", "0.5", "0.7", "0.9", "--json"])
    assert script.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["share"] < 1e-3
    for run in found["runs"]:
        assert run["passes"] == "eager passes"
        assert run["agrees"], run
        assert run["expected"] == pytest.approx((1 - run["alpha"] ** 5) / (1 - run["alpha"]))


def test_recorded_passes_keep_the_acceptance_rate(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
    script = importlib.import_module("gpu_check")
    monkeypatch.setattr(script, "recorder_of", lambda model: Tape())
    arguments = ["--size", "tiny", "--device", "cpu", "--dtype", "float32", "--threads", "1", "--tokens", "100"]
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *arguments, "--alpha", "0.7"])
    assert script.main() == 0  # which is that the tokens a step are those of the formula
    assert "a tape over a static cache" in " ".join(capsys.readouterr().out.split())
