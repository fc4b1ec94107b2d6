"""Acceptance as a server counts it: the counters of speculation that vLLM, and outpace serve, show at /metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

_LINE = re.compile(
    r"\w+:spec_decode_num_(accepted_tokens_per_pos|accepted_tokens|draft_tokens|drafts)(?:_total)?"
    r"(?:\{(.*)\})?\s+(\d[\d.eE+]*)(?:\s+\d+)?$"
)
_POSITION = re.compile(r'position="(\d+)"')
MOST_POSITIONS = 256


@dataclass(frozen=True, slots=True)
class Counters:
    """Drafts, their tokens, those accepted; by_position: drafts whose tokens were accepted up to each position."""

    drafts: int
    drafted: int
    accepted: int
    by_position: tuple[int, ...] = ()

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_draft(self) -> float | None:
        """Tokens that a pass with a draft gives, the correction or bonus included."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def conditional(self) -> tuple[float, ...]:
        """Acceptance at each position, given that those before it were accepted; as far as any draft got."""
        found: list[float] = []
        before = self.drafts
        for reached in self.by_position:
            if not before:
                break
            found.append(min(1.0, reached / before))
            before = reached
        return tuple(found)

    def since(self, before: Counters) -> Counters:
        """Returns what was counted after `before`."""
        earlier = before.by_position + (0,) * len(self.by_position)
        return Counters(
            self.drafts - before.drafts,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
            tuple(max(0, now - then) for now, then in zip(self.by_position, earlier, strict=False)),
        )

    def record(self) -> dict[str, Any]:
        """Returns everything as plain values for JSON."""
        return asdict(self) | {
            "by_position": list(self.by_position),
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_draft": self.tokens_per_draft,
        }


def read_counters(text: str) -> Counters | None:
    """Returns the sums over all labels of a text in Prometheus' format; None where it has no such counters.

    Counters of any prefix count ("vllm:", "outpace:"), with or without "_total", as versions write them.
    """
    sums: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        name, labels, value = found.groups()
        try:
            count = float(value)
        except ValueError:
            continue
        if name != "accepted_tokens_per_pos":
            sums[name] += count
            continue
        position = _POSITION.search(labels or "")
        if position and int(position[1]) < MOST_POSITIONS:
            positions[int(position[1])] += count
    if "draft_tokens" not in sums:
        return None
    by_position = tuple(int(positions[place]) for place in range(max(positions, default=-1) + 1))
    return Counters(int(sums["drafts"]), int(sums["draft_tokens"]), int(sums["accepted_tokens"]), by_position)
