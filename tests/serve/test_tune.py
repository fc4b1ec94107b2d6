"""`tune --endpoint` against this server."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from outpace.audit.server import connect
from outpace.bench.endpoint import tune_endpoint

pytestmark = pytest.mark.embedded


def test_our_server_is_measured_from_outside(served):
    questions = ["Count from one to twenty, and then again from one to twenty.", "Say hello five times."]
    plain = connect(served.url, chat_first=True, fields={"speculation": {"off": True}})
    found = tune_endpoint(
        connect(served.url, chat_first=True), questions, plain=plain, max_tokens=48, repeats=1, loads=(2,)
    )
    assert found.stopped is None
    assert [one.plain_seconds is not None for one in found.answers] == [True, True]
    assert found.speedup is not None
    assert found.counters is not None
    assert 0 < found.counters.accepted <= found.counters.drafted
    assert found.counters.by_position[0] <= found.counters.drafts
    assert found.tokens_per_second_at[2] > 0
