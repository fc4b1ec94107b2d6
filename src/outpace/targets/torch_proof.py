"""What a model shows of itself before it is used: that drafts scored in one pass are scored as one token at a time.

A modelling file may build its masks or positions from the number of rows, keep state beside its cache, or ignore the
cache; no list of architectures says so. A few passes over four tokens do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outpace.errors import Unsupported
from outpace.types import EMPTY, Draft, Verdict

if TYPE_CHECKING:
    from outpace.targets.torch_causal import TorchTarget

Logits = NDArray[np.float32]

TOLERANCE = 0.25
"""Differences of rounding must stay under this share of what one other token on the path changes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What passes gave: [path + 1, V] the logits after two tokens and along three more, one a pass.

    allowed: how far from them rounding may lead.
    """

    prompt: tuple[int, int]
    path: tuple[int, int, int]
    logits: Logits
    allowed: float


def prove(target: TorchTarget) -> Shown:
    """Sets `scores_trees` and `joins_requests` to what the model does right; returns what it gave.

    Raises Unsupported when a chain scored in one pass is not scored as token by token, or logits are not numbers.
    """
    step = max(1, target.vocab_size // 7)
    a, b, c, d = ((1 + i * step) % target.vocab_size for i in range(4))
    prompt = (a, b)
    one_by_one = _sequential(target, prompt, (c, d, a))
    changed = _scored(target, prompt, Draft.chain((b, d, a)))[-1]
    if not np.isfinite(one_by_one).all():
        dtype = str(target.model.dtype).removeprefix("torch.")
        raise Unsupported(f"{target.name}: its logits are not numbers in {dtype}; load it in float32")
    allowed = TOLERANCE * float(np.abs(changed - one_by_one[-1]).max())
    chain = _scored(target, prompt, Draft.chain((c, d, a)))
    if not _close(chain, one_by_one, allowed):
        raise Unsupported(
            f"{target.name}: several tokens scored in one pass are not scored as one at a time (off by "
            f"{np.abs(chain - one_by_one).max():.2g}): {type(target.model).__name__} cannot verify drafts"
        )
    shown = Shown(prompt, (c, d, a), one_by_one, allowed)
    target.scores_trees = target.scores_trees and _close(_along(target, shown), one_by_one, allowed)
    target.joins_requests = target.scores_trees and _joins(target, prompt, (c, d, a), one_by_one, allowed)
    target.forget()
    return shown


def check_static(target: TorchTarget, shown: Shown) -> None:
    """Has the target's recorded passes dropped if they are not what passes over growing buffers were.

    What a modelling file computes in Python is in a recording as it was when it was made, and nowhere said.
    """
    found = _sequential(target, shown.prompt, shown.path), _along(target, shown)
    if not all(_close(rows, shown.logits, shown.allowed) for rows in found):
        off = max(float(np.abs(rows - shown.logits).max()) for rows in found)
        target.unrecord(f"recorded passes score otherwise (off by {off:.2g})")
    target.forget()


def _along(target: TorchTarget, shown: Shown) -> Logits:
    """Returns the logits after the prompt and along the path, from one pass over the tree."""
    (_, b), (c, d, a) = shown.prompt, shown.path
    tree = Draft((b, c, b, d, a), (-1, -1, 1, 1, 3), (None,) * 5)
    return _scored(target, shown.prompt, tree)[[0, 2, 4, 5]]


def _sequential(target: TorchTarget, prompt: Sequence[int], path: Sequence[int]) -> Logits:
    session, _ = target.open(target.sample(prompt))
    rows = []
    for token in (*path, -1):
        [scores] = target.score_many([(session, EMPTY)])
        rows.append(scores.logits[0])
        if token >= 0:
            session.commit(EMPTY, Verdict((), token))
    return np.stack(rows)


def _scored(target: TorchTarget, prompt: Sequence[int], draft: Draft) -> Logits:
    session, _ = target.open(target.sample(prompt))
    [scores] = target.score_many([(session, draft)])
    logits: Logits = scores.logits
    return logits


def _joins(target: TorchTarget, prompt: Sequence[int], path: Sequence[int], expected: Logits, allowed: float) -> bool:
    """Whether a request scores among a longer one as it does alone."""
    alone, _ = target.open(target.sample(prompt))
    other, _ = target.open(target.sample((*path, *prompt, *path)))
    scores = target.score_many([(other, Draft.chain(path[:1])), (alone, Draft.chain(path))])
    return _close(scores[1].logits, expected, allowed)


def _close(rows: Logits, expected: Logits, allowed: float) -> bool:
    return bool(np.isfinite(rows).all() and np.abs(rows - expected).max() <= max(allowed, 1e-6))
