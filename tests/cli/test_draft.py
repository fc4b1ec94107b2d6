"""`outpace draft`: the command line of what drafts for a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outpace.cli.app import app
from outpace.cli.draft import numbers
from outpace.errors import UsageError

pytest.importorskip("outpace._native", reason="the native engine is not built")


def test_make_writes_a_draft_and_says_what_it_reads(tiny_llama: Path, tmp_path: Path) -> None:
    asked = ["--from", str(tiny_llama), "--for", str(tiny_llama), "--out", str(tmp_path / "d.gguf"), "--vocab", "50"]
    done = CliRunner().invoke(app, ["draft", "make", *asked, "--bits", "8", "--layers", "0", "--json"])
    assert done.exit_code == 0
    record = json.loads(done.stdout)
    assert record["layers"] == 1
    assert record["pass_bytes"] < record["source_pass_bytes"]
    assert (tmp_path / "d.gguf").exists()


def test_store_adds_answers(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("ab\nabc\n")
    asked = ["--for", str(tiny_llama), "--prompts", str(tmp_path / "p.txt"), "--out", str(tmp_path / "s")]
    done = CliRunner().invoke(app, ["draft", "store", *asked, "--max-tokens", "4", "--threads", "1"])
    assert done.exit_code == 0
    assert "2 answers more" in done.stdout
    assert (tmp_path / "s").exists()


def test_numbers_are_lists_and_ranges() -> None:
    assert numbers("0-2,5") == [0, 1, 2, 5]
    for wrong in ("5-2", "0-99999999999", "-1", ""):
        with pytest.raises(UsageError, match=f"such as 0-11,23, got '{wrong}'"):
            numbers(wrong)
    with pytest.raises(UsageError, match="--layers names a layer twice: leave one of them out, got '0-3,2'"):
        numbers("0-3,2")
    with pytest.raises(UsageError, match="such as 0-11,23, got '1-x'"):
        numbers("1-x")
