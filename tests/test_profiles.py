"""Saved costs: read by whom they are meant for, refused when damaged, without a say in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace import Model, profiles
from outpace.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_PROFILES", str(tmp_path))
    return tmp_path


def saved(model: Model) -> Path:
    key = profiles.meant_for(model.target, model.draft)
    return profiles.save(key, {1: 0.010, 4: 0.011, 8: 0.020}, {"model": 0.004}, {"drafter": "model"})


def test_costs_are_read_in_plain_passes(native: Model) -> None:
    saved(native)
    costs = profiles.recall(native.target, native.draft)
    assert costs.score(4) == pytest.approx(1.1)
    assert costs.score(6) == pytest.approx(1.55)
    assert costs.drafting("model")(1) == pytest.approx(0.4)
    assert costs.drafting("model")(4) == pytest.approx(1.6)


def test_nobody_else_reads_them(native: Model) -> None:
    saved(native)
    assert profiles.recall(native.target, None).score(4) != pytest.approx(1.1)


def test_a_damaged_profile_is_one_sentence(native: Model) -> None:
    file = saved(native)
    for text in ("", "[]", '{"format": "outpace profile 1", "for": {}}', file.read_text().replace("0.011", "-1")):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"is no profile .*: remove it, or run outpace tune again"):
            profiles.recall(native.target, native.draft)
