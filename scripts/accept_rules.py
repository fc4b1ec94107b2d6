"""Every rule and every sampling parameter, on the embedded model and the real pair."""

from __future__ import annotations

from rules import expected, structured

LINES = [*expected.LINES, *structured.LINES]
