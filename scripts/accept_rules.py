"""Every rule and every sampling parameter, on the embedded model and the real pair."""

from __future__ import annotations

from rules import audits, expected, sampler, structured

LINES = [*expected.LINES, *structured.LINES, *sampler.LINES, *audits.LINES]
