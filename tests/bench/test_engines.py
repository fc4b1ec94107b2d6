"""Peers: what is not installed is named, and llama.cpp's greedy text does not depend on its drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from outpace.bench import engines
from outpace.bench.tasks import Question
from outpace.errors import UsageError


def given(model: Path, draft: Path | None = None) -> engines.Field:
    return engines.Field(model, draft, threads=1, positions=256, ends=frozenset({2}))


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown peer 'x'; known: llama\.cpp, openvino, transformers, vllm"):
        engines.check_names(["x"])


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    found, missing = engines.open_peers(["vllm", "openvino"], given(tmp_path))
    assert found == []
    assert missing["openvino"] == "not installed: pip install openvino-genai"


def test_a_peer_that_cannot_start_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: object())
    monkeypatch.setattr(engines, "import_module", lambda name: (_ for _ in ()).throw(RuntimeError("no\nluck")))
    assert engines.open_peers(["vllm"], given(tmp_path)) == ([], {"vllm": "RuntimeError: no luck"})


def test_of_a_peer_that_fails_later_the_settings_before_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(field: engines.Field) -> Iterator[str]:
        yield "plain"
        raise RuntimeError("a draft of another kind")

    monkeypatch.setattr(engines, "find_spec", lambda name: object())
    monkeypatch.setattr(engines, "import_module", lambda name: SimpleNamespace(contenders=settings))
    found, missing = engines.open_peers(["llama.cpp"], given(tmp_path))
    assert (found, missing) == (["plain"], {"the rest of llama.cpp": "RuntimeError: a draft of another kind"})


@pytest.mark.embedded
def test_drafts_do_not_change_what_llama_cpp_says(embedded_model: Path) -> None:
    pytest.importorskip("llama_cpp")
    field = given(embedded_model, embedded_model)
    with field.resources:
        found, missing = engines.open_peers(["llama.cpp"], field)
        ids = [1, 4093, 198, *range(500, 540), *range(500, 540)]
        texts = [one.answer(Question("q", "t", ""), ids, 24) for one in found]
    assert (len(found), missing) == (3, {})
    assert {one.tokens for one in texts} == {texts[0].tokens}
    assert texts[2].accepted > 0.9 * texts[2].drafted  # it drafts for itself
