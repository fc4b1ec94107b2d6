"""`outpace simulate` from figures, without a model."""

from __future__ import annotations

import json

import pytest

FIGURES = ["--pass-ms", "1:2", "--pass-ms", "8:2.6", "--pass-ms", "32:8", "--prefill", "5000", "--requests", "60"]


def test_each_load_has_a_line_without_and_one_with_drafts(run):
    done = run("simulate", *FIGURES, "--rate", "1", "--rate", "4", "--json")
    loads = json.loads(done.stdout)["loads"]
    assert [(load["rate"], load["mode"]) for load in loads] == [(r, m) for r in (1, 4) for m in ("plain", "drafts")]
    assert loads[1]["latency"][0] < loads[0]["latency"][0]


def test_the_table_names_its_units(run):
    done = run("simulate", *FIGURES)
    assert done.exit_code == 0
    assert "tokens/s" in done.stdout
    assert done.stdout.count("drafts") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pass-ms", "1:2"], "--pass-ms needs --prefill"),
        (["--pass-ms", "one", "--prefill", "1"], "must be ROWS:MS, for example 8:2.7, got 'one'"),
        (["--pass-ms", "2:2", "--prefill", "1"], "needs the time of one row"),
        (["--pass-ms", "1:0", "--prefill", "1"], "--pass-ms must be a positive number of milliseconds, got 0.0"),
        (
            ["--pass-ms", "0:2", "--prefill", "1"],
            "rows of --pass-ms must be a whole number of rows, 1 or more, got 0",
        ),
        ([*FIGURES, "--draft-ms", "-1"], "--draft-ms must be 0 or a positive number of milliseconds, got -1.0"),
        ([*FIGURES, "--model", "other"], "--pass-ms stands for a model, and none is loaded: leave it or --model out"),
        ([*FIGURES, "--threads", "2"], "--pass-ms stands for a model, and none is loaded: leave it or --threads out"),
        ([*FIGURES, "--acceptance", "2"], "acceptance"),
        ([*FIGURES, "--rate", "-1"], "rate"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, words, message):
    done = run("simulate", *words)
    assert done.exit_code == 2
    assert message in done.stderr
