"""The tokens of a model, as text and kind, and whether two models share them.

A draft model speaks in the target's ids, so what must agree is the token behind each id: not the number of rows of
the embedding, which is padded to taste.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What a token is for, numbered as in GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_END_OF_GENERATION = {
    # ends of a turn or a text
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>",
    "<end_of_turn>", "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>",
    # ends of a file, from models that fill in the middle
    "<|fim_pad|>", "<fim-pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
    "<|file_sep|>",
}  # fmt: skip


def end_of_generation(tokens: Sequence[str], kinds: NDArray[np.generic]) -> frozenset[int]:
    """Returns the ids of the control tokens that are known by name to end a generation.

    Only control tokens: "</s>" is also four ordinary characters that a model may want to write.
    """
    return frozenset(i for i in np.flatnonzero(kinds == Kind.CONTROL).tolist() if tokens[i] in _END_OF_GENERATION)


@dataclass(frozen=True, slots=True)
class Difference:
    """One id that means different tokens; None where a vocabulary has none."""

    id: int
    target: str | None
    draft: str | None

    def __str__(self) -> str:
        return f"id {self.id} is {self.target!r} in the target, {self.draft!r} in the draft"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a draft's vocabulary relates to the target's.

    verdict: "same"; "special" when only control, user-defined or unknown tokens differ; "different" when an ordinary
    token does. differences: those special tokens, or the first difference alone.
    """

    verdict: Literal["same", "special", "different"]
    differences: tuple[Difference, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether the one can draft for the other."""
        return self.verdict != "different"

    def __str__(self) -> str:
        if self.verdict == "same":
            return "same vocabulary"
        if self.verdict == "different":
            return f"different vocabularies: {self.differences[0]}"
        listed = "; ".join(map(str, self.differences[:5])) + ("; ..." if len(self.differences) > 5 else "")
        return f"same vocabulary but for {len(self.differences)} special tokens: {listed}"


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """tokens: the text of each id, in the tokenizer's own alphabet; kinds: [len(tokens)] of Kind."""

    tokens: Sequence[str]
    kinds: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.tokens)

    def of_kind(self, kind: Kind) -> list[int]:
        """Returns the ids of one kind, ascending."""
        return [int(i) for i in np.flatnonzero(self.kinds == kind)]


def compare(target: Vocabulary, draft: Vocabulary) -> Comparison:
    """Returns how the tokens behind the ids of two models agree; unused ids count as absent.

    Equal lists are compared at the speed of a memory comparison; only then are differences looked for one by one.
    """
    shared = min(len(target), len(draft))
    tokens = target.tokens[:shared], draft.tokens[:shared]
    kinds = target.kinds[:shared], draft.kinds[:shared]
    suspects: list[int] = []
    unused = (kinds[0] == Kind.UNUSED) != (kinds[1] == Kind.UNUSED)
    if tokens[0] != tokens[1]:
        suspects = [i for i, (a, b) in enumerate(zip(*tokens, strict=True)) if a != b or unused[i]]
    elif unused.any():
        suspects = [int(i) for i in np.flatnonzero(unused)]
    suspects += range(shared, max(len(target), len(draft)))
    special: list[Difference] = []
    for i in suspects:
        (ours, our_kind), (theirs, their_kind) = _token(target, i), _token(draft, i)
        if ours == theirs:
            continue
        difference = Difference(i, ours, theirs)
        if Kind.NORMAL in (our_kind, their_kind) or Kind.BYTE in (our_kind, their_kind):
            return Comparison("different", (difference,))
        special.append(difference)
    return Comparison("special" if special else "same", tuple(special))


def _token(vocabulary: Vocabulary, id: int) -> tuple[str | None, int]:
    """Returns the text and kind of an id; no text for an unused or absent one."""
    if id >= len(vocabulary) or vocabulary.kinds[id] == Kind.UNUSED:
        return None, Kind.UNUSED
    return vocabulary.tokens[id], int(vocabulary.kinds[id])
