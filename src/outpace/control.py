"""Controllers: how much may be drafted next. Zero is a legal answer, and then decoding is plain."""

from __future__ import annotations

from outpace.errors import UsageError
from outpace.types import Budget, Step


class FixedController:
    """The same chain budget every round."""

    def __init__(self, draft_length: int) -> None:
        if draft_length < 0:
            raise UsageError(f"draft_length must be at least 0 (0 = plain decoding), got {draft_length}")
        self._budget = Budget.chain(draft_length)

    def budget(self, load: int) -> Budget:
        return self._budget

    def observe(self, step: Step) -> None:
        pass

    def reason(self) -> str:
        return f"draft length fixed at {self._budget.depth}"
