"""The page of `outpace plan --html`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from outpace.cli.app import app
from outpace.cli.plan_html import lengths_page
from outpace.theory.length_table import length_table

PAIR = ["plan", "--target", "llama-3.1-8b", "--device", "h100"]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_the_page_holds_the_plan_and_curves_that_end_where_memory_does(tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    result = CliRunner().invoke(app, [*PAIR, "--html", str(file)])
    assert result.exit_code == 0
    data = data_of(file.read_text())
    assert data["plan"]["verdict"].startswith("speculate with EAGLE-class head")
    assert data["numbers"]["alpha"] == 0.8
    for candidate in data["plan"]["candidates"]:
        loads = [requests for requests, _ in candidate["by_load"]]
        assert loads[0] == 1
        assert loads[-1] <= candidate["requests"] < 2 * loads[-1]


def test_the_page_stands_alone() -> None:
    page = lengths_page(length_table(0.8, 0.05))
    outside = re.findall(r'(?:src|href|url)\s*[=(]|import\s*\(|fetch\(|https?://[^"\s]*', page)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert data_of(page) == {"plan": None, "numbers": {"alpha": 0.8, "cost": 0.05, "slope": 0.0}}


def test_a_name_cannot_end_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "x<" / "script><script>alert(1)"
    folder.mkdir(parents=True)
    config = {
        "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16, "intermediate_size": 8192,
        "vocab_size": 128256,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    file = tmp_path / "plan.html"
    assert CliRunner().invoke(app, [*PAIR, "--draft", str(folder), "--html", str(file)]).exit_code == 0
    assert "alert(1)" in json.dumps(data_of(file.read_text()))
    assert file.read_text().count("<script") == 2


def test_a_page_has_a_name_that_says_so_and_a_folder_that_is_there(tmp_path: Path) -> None:
    for name, message in (("plan.png", "--html writes a page"), ("no/plan.html", "No such file")):
        result = CliRunner().invoke(app, [*PAIR, "--html", str(tmp_path / name)])
        assert result.exit_code in (1, 2)
        assert message in result.stderr
        assert result.stdout == ""
