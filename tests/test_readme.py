"""What the README shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


@pytest.mark.embedded
def test_the_model_example_runs(embedded_model, capsys):
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert "tokens/s" in capsys.readouterr().out


def test_the_rules_example_runs(capsys):
    exec(compile(EXAMPLES[1], "README.md", "exec"), {})
    assert "0.7" in capsys.readouterr().out
