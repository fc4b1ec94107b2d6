"""A row's logits depend on its own path alone, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from acceptance import Outcome
from numpy.typing import NDArray

from first_light.common import EMBEDDED, TARGET, load, prompts
from outpace.targets.native import NativeTarget

Floats = NDArray[np.float32]
ROWS = 12  # tokens scored after the prefill


def scored(target: NativeTarget, ids: list[int], tail: list[int], piece: int) -> tuple[Floats, Floats]:
    """Returns logits and every layer's hidden states of `tail`, after a prefill of `ids` in slices."""
    session = target.model.open()
    for start in range(0, len(ids), piece):
        target.model.prefill(session, ids[start : start + piece])
    return of(target, [(session, tail, list(range(-1, len(tail) - 2)))])[0]


Work = list[tuple[object, list[int], list[int]]]


def of(target: NativeTarget, work: Work) -> list[tuple[Floats, Floats]]:
    taps = tuple(range(target.hidden_layers))
    return [(logits.copy(), hidden.copy()) for logits, hidden in target.model.score(work, taps)]


def measure(name: str, length: int = 300) -> Iterator[Outcome]:
    """Yields whether the last rows after `length` tokens are the same bits in every company."""
    model = load(name)
    target = model.target
    text = model.text.encode(max((p for _, p in prompts()), key=len), special=False)[: length + ROWS]
    ids, tail = text[:length], text[length:]
    chain = list(range(-1, ROWS - 2))
    want = scored(target, ids, tail, len(ids))

    def equal(what: str, got: tuple[Floats, Floats], rows: slice = slice(None)) -> Outcome:
        bits = all(np.array_equal(w[rows].view(np.uint32), g.view(np.uint32)) for w, g in zip(want, got, strict=True))
        return Outcome(what, "equal" if bits else "different", "bit for bit", bits)

    for piece in (1, 7, 64):
        yield equal(f"{name}: prefill in slices of {piece}", scored(target, ids, tail, piece))

    session = target.model.open()
    target.model.prefill(session, ids + tail)
    [hit] = of(target, [(session.fork(len(ids)), tail, chain)])
    yield equal(f"{name}: after a prefix-cache hit", hit)

    session = target.model.open()
    target.model.prefill(session, ids)
    [tree] = of(target, [(session, *tree_around(tail))])
    yield equal(f"{name}: a path of a tree against a chain", (tree[0][0::2], tree[1][0::2]))

    one = target.model.open()
    target.model.prefill(one, ids)
    others = []
    for i in range(15):
        other = target.model.open()
        target.model.prefill(other, ids[i : 20 + 7 * i])
        others.append((other, tail[: 1 + i % ROWS], chain[: i % ROWS]))
    mixed = of(target, [*others[:7], (one, tail, chain), *others[7:]])
    yield equal(f"{name}: among 15 other requests", mixed[7])
    single = [of(target, [(s, [t], [])])[0] for s, t in one_by_one(target, ids + tail)]
    joined = tuple(np.concatenate(part)[-ROWS:] for part in zip(*single, strict=True))
    yield equal(f"{name}: one token at a time", (joined[0], joined[1]))


def one_by_one(target: NativeTarget, ids: list[int]) -> Iterator[tuple[object, int]]:
    """Yields a session and its next token, after which the caller scores it and it is committed here."""
    session = target.model.open()
    for token in ids:
        yield session, token
        session.commit([])


def tree_around(tail: list[int]) -> tuple[list[int], list[int]]:
    """Returns tokens and parents of a tree in which every node of `tail` has a foreign sibling after it."""
    tokens, parents = [tail[0]], list[int]()
    node = -1
    for token in tail[1:]:
        tokens += [(token + 1) % 1000, token]
        parents += [node, node]
        node = len(parents) - 1
    return tokens, parents


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("bits", "embedded model: logits and hidden states of a path, however it is scored", lambda: measure(EMBEDDED)),
    ("pair-bits", "1.5B: the same", lambda: measure(TARGET)),
]
