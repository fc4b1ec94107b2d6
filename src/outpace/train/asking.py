"""Prompts that the target writes itself: its chat template's opening of a user's turn, continued at random.

A chat model has learnt users' turns beside its own, so what it writes there is like what it was trained to answer
(Magpie, Xu et al. 2024, arXiv 2406.08464). Heads and stores that learn from such answers know more of what they will
meet than public prompts teach.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outpace.errors import Unsupported, UsageError
from outpace.sampling import Sampler, SamplingParams
from outpace.text import Text
from outpace.types import EMPTY, Prompt, Target, TargetSession, Verdict

LEAST_CHARACTERS = 8
"""Shorter turns ask for nothing."""

MOST_DROPPED = 100
"""Attempts in a row, at least, before a target is taken to write no prompts."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What `train prompts` writes. count: prompts to have in the end. max_tokens: longer ones are dropped."""

    count: int
    max_tokens: int
    temperature: float
    top_p: float
    batch: int
    seed: int

    def check(self) -> None:
        """Raises UsageError naming every number that is out of range."""
        wrong = [
            f"{name} must be at least 1, got {value}"
            for name, value in (("count", self.count), ("max_tokens", self.max_tokens), ("batch", self.batch))
            if value < 1
        ]
        if not 0 < self.temperature < math.inf:
            wrong.append(f"temperature must be above 0, got {self.temperature}: all prompts would be the same")
        if not 0 < self.top_p <= 1:
            wrong.append(f"top_p must be in (0, 1], got {self.top_p}")
        if wrong:
            raise UsageError("; ".join(wrong))


@dataclass(slots=True)
class _Turn:
    """A user's turn being written; its draws depend on `number`."""

    number: int
    session: TargetSession
    sampler: Sampler
    tokens: list[int]


def user_opening(text: Text) -> list[int]:
    """Returns the ids with which the model's template opens a user's turn: what any two messages begin with.

    Raises Unsupported where that is nothing.
    """
    one, other = (text.render_chat([{"role": "user", "content": content}]) for content in ("a", "5"))
    opening: list[int] = []
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        opening.append(a)
    if not opening:
        raise Unsupported("the model's chat template opens no user's turn that could be continued")
    return opening


def write_prompts(
    target: Target, text: Text, out: Path, asking: Asking, show: Callable[[int, int, str], None]
) -> int:
    """Returns how many prompts the file `out` has; one that is there already is added to.

    JSON lines: the `prompt`, and the `number` of the attempt. Turns that do not end, say next to nothing or were
    written before are dropped. Raises UsageError where a whole file's worth of attempts in a row was.
    """
    opening = user_opening(text)
    kept, number = _written(out)
    running: list[_Turn] = []
    dropped = 0
    try:
        with out.open("a", encoding="utf-8", buffering=1) as file:  # whole lines, whatever ends the process
            while len(kept) < asking.count:
                while len(running) < asking.batch:
                    running.append(_begin(target, opening, number, asking))
                    number += 1
                _advance(target, running)
                for turn in [turn for turn in running if _over(turn, len(opening), target, asking)]:
                    running.remove(turn)
                    turn.session.close()
                    prompt = _prompt(turn.tokens[len(opening) :], target, text)
                    dropped += 1
                    if prompt and prompt not in kept and len(kept) < asking.count:
                        kept.add(prompt)
                        dropped = 0
                        file.write(json.dumps({"number": turn.number, "prompt": prompt}) + "\n")
                show(len(kept), asking.count, f"{number:,} turns begun")
                if dropped > max(asking.count, MOST_DROPPED):
                    raise UsageError(f"{dropped} turns in a row were no new prompts: this target does not write any")
    finally:
        for turn in running:
            turn.session.close()
    return len(kept)


def _written(out: Path) -> tuple[set[str], int]:
    """Returns the prompts of a file and the number of the next attempt."""
    if not out.exists():
        return set(), 0
    prompts, last = set(), -1
    for number, line in enumerate(out.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
            prompts.add(str(record["prompt"]))
            last = max(last, int(record["number"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{out}, line {number}: was not written by `train prompts`") from None
    return prompts, last + 1


def _begin(target: Target, opening: Sequence[int], number: int, asking: Asking) -> _Turn:
    session, _ = target.open(Prompt(tuple(opening)))
    law = SamplingParams(temperature=asking.temperature, top_p=asking.top_p)
    return _Turn(number, session, Sampler(law, asking.seed, number), list(opening))


def _advance(target: Target, running: Sequence[_Turn]) -> None:
    """Adds one token to each turn in one pass."""
    scores = target.score_many([(turn.session, EMPTY) for turn in running])
    for turn, score in zip(running, scores, strict=True):
        [token] = turn.sampler.draw_all(score, turn.tokens, EMPTY)
        turn.session.commit(EMPTY, Verdict((), token))
        turn.tokens.append(token)


def _over(turn: _Turn, opening: int, target: Target, asking: Asking) -> bool:
    longest = min(opening + asking.max_tokens, target.max_length)
    return turn.tokens[-1] in target.eos_ids or len(turn.tokens) >= longest


def _prompt(tokens: Sequence[int], target: Target, text: Text) -> str:
    """Returns what a turn asks; nothing where it did not end."""
    if tokens[-1] not in target.eos_ids:
        return ""
    prompt = text.decode(tokens[:-1]).strip()
    return prompt if len(prompt) >= LEAST_CHARACTERS else ""
