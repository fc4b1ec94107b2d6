"""What a generation gives back: pieces of text as they come, and the whole with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outpace.estimates import Expectation
from outpace.predicted import appeared
from outpace.types import Draft, Step

ACCEPTED, CORRECTION, BONUS, PLAIN = "accepted", "correction", "bonus", "plain"


def origins(step: Step) -> tuple[str, ...]:
    """Returns how each token of a step came: accepted, correction, bonus, or plain where nothing was drafted.

    A draft token at which the text ended was accepted too, though it stands in the verdict as `next_token`.
    """
    path = step.verdict.path
    guesses = step.draft.children(path[-1] if path else -1)
    if not guesses:
        last = BONUS if path else PLAIN
    elif step.verdict.next_token in (step.draft.tokens[node] for node in guesses):
        last = ACCEPTED
    else:
        last = CORRECTION
    return (*(ACCEPTED for _ in path), last)


def without_laws(step: Step) -> Step:
    """Returns the step less the laws that its draft was drawn from: each holds a row of logits."""
    draft = step.draft
    if not any(draft.laws):
        return step
    bare = Draft(draft.tokens, draft.parents, (None,) * len(draft), draft.probes)
    return Step(bare, step.verdict, step.tokens, step.finish, step.seconds)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """An emitted token, its natural log-probability, and the likeliest tokens at its place, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One round's text. pieces: [len(step.tokens)] what each token adds to it, "" while a character is unfinished.

    A piece may be held back while it could begin a stop string, and comes with a later token. logprobs: one a token,
    where they were asked for.
    """

    pieces: tuple[str, ...]
    step: Step
    logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def text(self) -> str:
        """What this round adds to the text."""
        return "".join(self.pieces)

    @property
    def origins(self) -> tuple[str, ...]:
        """How each token came: "accepted", "correction", "bonus" or "plain"."""
        return origins(self.step)


@dataclass(frozen=True, slots=True)
class Seconds:
    """load: reading and packing the weights, once. prefill: the prompt. decode: all rounds, of which draft, score
    and verify are parts; the rest is the loop's own."""

    load: float
    prefill: float
    decode: float
    draft: float
    score: float
    verify: float


@dataclass(frozen=True, slots=True)
class Result:
    """A finished generation.

    finish: "stop", "length" or "cancelled". reason: why this drafter and these lengths. fault: why the drafter was
    dropped on the way, None if it was not. reproducible: whether the same call gives the same text. lossless: whether
    the rule keeps the target's law.
    operations_factor: rows that the target scored, and draft tokens by their share of the target's bytes, over
    tokens: 1 is plain decoding (Leviathan et al. 2023, theorem 3.11). draft_bytes: what one draft token reads.
    plain_seconds: of a pass that scores one token, as far as is known, else 0. expected: by control, in the end.
    choice: which of the seed's texts this is; others: the further choices of a call with n > 1. logprobs: one a
    token under the target's own law, where they were asked for. predicted: the tokens of the answer that the caller
    expected, those that the context has room for.
    """

    text: str
    tokens: tuple[int, ...]
    steps: tuple[Step, ...]
    finish: str
    prompt_tokens: int
    seconds: Seconds
    operations_factor: float
    draft_bytes: int
    reproducible: bool
    model: str
    engine: str
    drafter: str
    rule: str
    lossless: bool
    seed: int
    threads: int
    reason: str
    fault: str | None
    plain_seconds: float = 0.0
    expected: Expectation | None = None
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] | None = None
    others: tuple[Result, ...] = ()
    predicted: tuple[int, ...] = ()

    @property
    def choices(self) -> tuple[Result, ...]:
        """All results of the call, this one first."""
        return (self, *self.others)

    @property
    def drafted(self) -> int:
        return sum(step.drafted for step in self.steps)

    @property
    def accepted(self) -> int:
        return sum(step.accepted for step in self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted, bonus excluded; None when nothing was drafted."""
        drafted = self.drafted
        return self.accepted / drafted if drafted else None

    @property
    def accepted_by_position(self) -> tuple[float, ...]:
        """[longest draft] of the drafts that reach so deep, the share accepted there (with all before it)."""
        return accepted_by_position(self.steps)

    @property
    def appeared(self) -> int:
        """How many of the predicted tokens stand in the text, in their order, drafted or not."""
        return appeared(self.predicted, self.tokens)

    @property
    def tokens_per_step(self) -> float:
        """Tokens per target pass, bonus included."""
        return len(self.tokens) / len(self.steps) if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of decoding alone."""
        return len(self.tokens) / self.seconds.decode if self.seconds.decode else 0.0

    @property
    def speedup(self) -> float | None:
        """Over plain decoding, a pass a token, at what such a pass costs; None where that is not known."""
        return self.tokens_per_second * self.plain_seconds or None

    def record(self) -> dict[str, Any]:
        """Returns the figures as plain data, ready for JSON."""
        s = self.seconds
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "tokens_per_step": self.tokens_per_step,
            "acceptance_rate": self.acceptance_rate,
            "accepted_by_position": list(self.accepted_by_position),
            "drafted": self.drafted,
            "accepted": self.accepted,
            "operations_factor": self.operations_factor,
            "draft_bytes": self.draft_bytes,
            "reproducible": self.reproducible,
            "model": self.model,
            "engine": self.engine,
            "drafter": self.drafter,
            "reason": self.reason,
            "speedup": self.speedup,
            "expected": None if self.expected is None else asdict(self.expected) | {"speedup": self.expected.speedup},
            "fault": self.fault,
            "rule": self.rule,
            "lossless": self.lossless,
            "seed": self.seed,
            "choice": self.choice,
            "logprobs": None if self.logprobs is None else [asdict(one) for one in self.logprobs],
            "others": [other.record() for other in self.others],
            "threads": self.threads,
            "seconds": {
                "load": s.load,
                "prefill": s.prefill,
                "decode": s.decode,
                "draft": s.draft,
                "score": s.score,
                "verify": s.verify,
            },
        }

    def summary(self) -> str:
        """Returns one line: tokens/s, tokens per step, acceptance rate, drafter and why, and where the time went."""
        s = self.seconds
        rate = self.acceptance_rate
        parts = [f"{len(self.tokens)} tokens at {self.tokens_per_second:.0f} tokens/s"]
        parts.append(f"{self.tokens_per_step:.2f} tokens a step")
        parts.append("nothing drafted" if rate is None else f"{100 * rate:.0f} % of {self.drafted} drafted accepted")
        parts.append(f"{self.drafter}: {self.reason}")
        if not self.lossless:
            parts.append(f"rule {self.rule} is lossy: not the model's own law")
        if self.fault:
            parts.append(f"drafter dropped, {self.fault}")
        if s.decode:
            draft, score = 100 * s.draft / s.decode, 100 * s.score / s.decode
            parts.append(f"draft {draft:.0f} %, score {score:.0f} %, overhead {100 - draft - score:.0f} %")
        return " | ".join(parts)


def explanation(result: Result) -> list[str]:
    """Returns what control decided, what it expected and what came of it, a line each."""
    plain, expected, achieved = result.plain_seconds, result.expected, result.speedup
    lines = [f"control: {result.drafter}, {result.reason}"]
    if not plain or achieved is None:
        return [*lines, "plain decoding: what a pass costs is not known here; --compare runs it"]
    lines.append(f"plain decoding: {1e3 * plain:.2f} ms a pass, {1 / plain:.1f} tokens/s")
    if expected is not None:
        lines.append(
            f"expected: {expected.tokens:.2f} tokens a round of {expected.draft_length:.1f} drafted, which costs "
            f"{expected.cost:.2f} passes: {expected.speedup / plain:.1f} tokens/s, {expected.speedup:.2f} times plain"
        )
        if expected.rates:
            by_length = ", ".join(f"{length}: {rate:.2f}" for length, rate in enumerate(expected.rates[:9]))
            lines.append(f"by draft length, times plain: {by_length}")
    lines.append(
        f"realised: {result.tokens_per_step:.2f} tokens a round, {result.tokens_per_second:.1f} tokens/s, "
        f"{achieved:.2f} times plain"
    )
    return lines


def accepted_by_position(steps: Sequence[Step]) -> tuple[float, ...]:
    """Returns, for each depth, the share of the drafts reaching it whose accepted path reaches it too."""
    drafted: list[int] = []
    accepted: list[int] = []
    for step in steps:
        depth = verified_depth(step.draft)
        drafted += [0] * (depth - len(drafted))
        accepted += [0] * (depth - len(accepted))
        for i in range(depth):
            drafted[i] += 1
            accepted[i] += i < step.accepted
    return tuple(a / d for a, d in zip(accepted, drafted, strict=True))


def verified_depth(draft: Draft) -> int:
    """Returns the longest path of a draft, of the nodes that are there to be verified."""
    if not draft.probes:
        return draft.depth
    return max((len(draft.path_to(node)) for node in range(draft.verified)), default=0)
