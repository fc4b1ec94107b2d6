"""The commands on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.app import app

pytestmark = pytest.mark.embedded
PROMPT = "Repeat the days of the week, three times."


@pytest.fixture(autouse=True)
def _built() -> None:
    pytest.importorskip("outpace._native", reason="the native engine is not built")


def run(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["generate", PROMPT, "--json", *arguments])
    assert result.exit_code == 0, result.stderr
    record: dict[str, object] = json.loads(result.stdout)
    return record


@pytest.mark.parametrize("sampling", [[], ["-t", "1", "--seed", "5"]])
def test_the_text_with_speculation_is_the_text_without(embedded_model: Path, sampling: list[str]) -> None:
    record = run("-m", str(embedded_model), "--draft-length", "4", "-n", "48", "--compare", *sampling)
    assert record["identical"]


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_model_that_drafts_for_itself_has_q_equal_to_p_at_every_guess(embedded_model: Path, rule: str) -> None:
    model = str(embedded_model)
    options = ["-t", "0.8", "--top-p", "0.9", "--seed", "2", "--draft-length", "3", "-n", "24", "--rule", rule]
    record = run("-m", model, "--draft", model, "--trace", *options)
    guesses = [guess for one in record["rounds"] for guess in one["guesses"]]  # type: ignore[attr-defined]
    assert len(guesses) >= 9
    assert all(guess["p"] == guess["q"] for guess in guesses)
    assert not any(guess["outcome"] == "rejected" for guess in guesses)
