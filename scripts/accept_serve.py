"""Serve: any OpenAI client, many at a time, and nothing that they can break."""

from __future__ import annotations

from serving import endurance, load

LINES = [*load.LINES, *endurance.LINES]
