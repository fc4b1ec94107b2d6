"""Serve: any OpenAI client, many at a time, and nothing that they can break."""

from __future__ import annotations

from serving import endurance, load, peers, simulated

LINES = [*load.LINES, *simulated.LINES, *peers.LINES, *endurance.LINES]
