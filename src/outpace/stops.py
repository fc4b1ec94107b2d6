"""Stop strings in a text that grows piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.errors import UsageError


class StopScanner:
    """Finds where a growing text ends.

    The text ends before the stop string that is complete first; of two that are complete at the same character, the
    longer one, which starts earlier. So the end does not depend on how the text was cut into pieces. Text that may
    be the beginning of a stop string is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(isinstance(stop, str) and stop for stop in stops):
            raise UsageError(f"stop strings must be a list of texts that are not empty, got {stops!r:.80}")
        for stop in stops:
            if any("\ud800" <= character <= "\udfff" for character in stop):
                raise UsageError(f"a stop string must be Unicode, got half of a surrogate pair in {stop!r:.80}")
        self._stops = tuple(dict.fromkeys(stops))
        self._firsts = {stop[0] for stop in self._stops}
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> tuple[str, bool]:
        """Returns (the text that may be shown, whether a stop string is complete); nothing follows a stop."""
        if self.found is not None:
            return "", True
        if not self._stops:
            return text, False
        seen = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := seen.find(stop)) >= 0]
        if ends:
            _, start, self.found = min(ends)
            self._held = ""
            return seen[:start], True
        keep = self._possible_start(seen)
        self._held = seen[keep:]
        return seen[:keep], False

    def flush(self) -> str:
        """Returns the text that was held back, when nothing follows."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, seen: str) -> int:
        """Returns where the longest suffix begins that a stop string could start with."""
        for at in range(max(0, len(seen) - self._longest + 1), len(seen)):
            if seen[at] in self._firsts:
                rest = seen[at:]
                if any(stop.startswith(rest) for stop in self._stops):
                    return at
        return len(seen)
