"""The founding paper's experiment, on tiny random T5s."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

from typer.testing import CliRunner

import outpace
from outpace.bench.paper import EXPERIMENTS, run_paper
from outpace.cli.app import app
from outpace.errors import UsageError
from tiny_folders import pieces, saved

TEXTS = ("the sea is deep", "is the deep sea")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("t5")
    settings = {"eos_token": "</s>", "unk_token": "<unk>"}
    return [saved(place / f"t5-{seed}", "t5", pieces(), seed=seed, **settings) for seed in (0, 1)]


@pytest.fixture(scope="module")
def model(folders):
    target, draft = folders
    return outpace.load(target, draft=draft, engine="torch", device="cpu", threads=1)


def test_tasks_lengths_and_figures_are_the_papers():
    assert [one.draft_length for one in EXPERIMENTS.values()] == [7, 5]
    translation = EXPERIMENTS["translation"]
    assert translation.prefix == "translate English to German: "
    assert (translation.published[0.0].acceptance, translation.published[1.0].speedup) == (0.75, 2.6)


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_a_line_has_what_was_measured_and_what_the_theorem_makes_of_it(model, rule):
    lines = run_paper(model, texts=TEXTS, max_tokens=10, rule=rule)
    assert [(line.task, line.temperature) for line in lines] == [
        ("translation", 0.0), ("translation", 1.0), ("summarisation", 0.0), ("summarisation", 1.0)
    ]  # fmt: skip
    for line in lines:
        alpha = line.acceptance.value
        assert 0 <= alpha < 1
        assert line.expected == pytest.approx((1 - alpha ** (line.draft_length + 1)) / (1 - alpha))
        assert line.predicted == pytest.approx(line.expected / (line.draft_length * line.cost + 1))
        assert line.equal is (True if line.temperature == 0 else None)


def test_a_model_that_drafts_for_itself_is_always_accepted(folders):
    target, _ = folders
    with outpace.load(target, draft=target, engine="torch", device="cpu", threads=1) as model:
        [line] = run_paper(model, ["translation"], temperatures=(0.0,), texts=TEXTS, draft_length=2, max_tokens=9)
    assert line.acceptance.value == 1
    assert line.tokens_per_step == 3


def test_the_command_prints_a_table_or_a_record(folders, tmp_path):
    target, draft = map(str, folders)
    file = tmp_path / "texts"
    file.write_text("the sea\n\nis deep\n")
    arguments = ["bench", "paper", "-m", target, "--draft", draft, "--device", "cpu", "--threads", "1"]
    arguments += ["--task", "translation", "--max-tokens", "6", "-t", "0", "--texts", str(file)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    [line] = json.loads(done.stdout)["lines"]
    assert (line["texts"], line["draft_length"], line["published"]["speedup"]) == (2, 7, 3.4)
    done = CliRunner().invoke(app, arguments)
    assert "3.4x" in done.output
    assert "greedy texts are plain decoding's" in done.output
    for more, message in (
        (["--task", "summarisation"], "are of one task"),
        (["--texts", "/nowhere"], "cannot be read"),
    ):
        refused = CliRunner().invoke(app, [*arguments, *more])
        assert refused.exit_code == 2
        assert message in refused.output


def test_what_is_missing_is_named(model, folders, tiny_llama):
    with pytest.raises(UsageError, match="task must be one of translation, summarisation, got 'poetry'"):
        run_paper(model, ["poetry"])
    alone = outpace.load(folders[0], engine="torch", device="cpu", threads=1)
    with pytest.raises(UsageError, match="needs a draft model"):
        run_paper(alone)
