"""docs/reading-order.md points at files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_file_that_the_reading_order_names_exists():
    text = (ROOT / "docs" / "reading-order.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/]+\.(?:pyi?|cpp|h|toml))`", text)
    assert len(names) > 40
    known = [path.as_posix() for top in ("src", "csrc", "tests") for path in (ROOT / top).rglob("*.*")]
    missing = [name for name in names if not any(path.endswith("/" + name) for path in known)]
    assert missing == []
