"""First light: from the kernel to the terminal, on the embedded model and the real pair."""

from __future__ import annotations

from first_light import bits, equality, quality, resources, speed, statistics

LINES = [*bits.LINES, *equality.LINES, *statistics.LINES, *speed.LINES, *quality.LINES, *resources.LINES]
