"""One request with speculation and without: how much faster, and whether the text is the same."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.result import Result


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two texts part. token: its index among the new ones; the rest: up to 40 characters."""

    token: int
    before: str
    speculative: str
    plain: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two generations of the same request, decoded by the same process."""

    speculative: Result
    plain: Result

    @property
    def speedup(self) -> float:
        """Decoding speed in tokens/s over that of plain decoding; the prompt's prefill is in neither."""
        return self.speculative.tokens_per_second / self.plain.tokens_per_second

    @property
    def identical(self) -> bool:
        """Whether both are the same tokens, and the same text."""
        return (self.speculative.tokens, self.speculative.text) == (self.plain.tokens, self.plain.text)

    def first_difference(self) -> Difference | None:
        """Returns where they part; None if they do not."""
        if self.identical:
            return None
        ours, theirs = self.speculative, self.plain
        pairs = zip(ours.tokens, theirs.tokens, strict=False)
        shorter = min(len(ours.tokens), len(theirs.tokens))
        token = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        texts = zip(ours.text, theirs.text, strict=False)
        at = next((i for i, (a, b) in enumerate(texts) if a != b), min(len(ours.text), len(theirs.text)))
        return Difference(token, ours.text[max(0, at - 40) : at], ours.text[at : at + 40], theirs.text[at : at + 40])

    def record(self) -> dict[str, object]:
        """Returns the comparison as JSON has it."""
        difference = self.first_difference()
        return {
            "speculative": self.speculative.record(),
            "plain": self.plain.record(),
            "speedup": self.speedup,
            "identical": self.identical,
            "first_difference": None
            if difference is None
            else {
                "token": difference.token,
                "before": difference.before,
                "speculative": difference.speculative,
                "plain": difference.plain,
            },
        }
