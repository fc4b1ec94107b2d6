"""`audit endpoint` against this server with its drafts, beside itself without."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from outpace.audit.endpoint import EndpointExtent, audit_endpoint
from outpace.audit.prompts import TEXTS
from outpace.audit.server import connect

pytestmark = pytest.mark.embedded


def test_the_server_passes_beside_itself_without_drafts(served):
    plain = connect(served.url, fields={"speculation": {"off": True}})
    report = audit_endpoint(connect(served.url), plain, extent=EndpointExtent(TEXTS[:2], 24, 80))
    assert report.faults == ()
    assert report.count("not covered") == 0
    assert [control.name for control in report.controls if not control.killed] == []
