"""Widths: every instruction set, hostile model files, and the wheel."""

from __future__ import annotations

from widths import hardening, processors, release

LINES = [*processors.LINES, *hardening.LINES, *release.LINES]
