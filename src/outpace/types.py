"""The seven concepts of speculative decoding, as types.

A *target* model's output is to be reproduced. A *drafter* proposes the next few tokens (a `Draft`), the
target scores all of them in one pass (`Scores`), each node of the draft gets a *law* (what the plain
sampler would do there), a *rule* turns draft and laws into a `Verdict`, and the round is recorded as a
`Step`. A *controller* sets the `Budget` of the next draft; an empty draft is plain decoding.

Shapes: N nodes in a draft, V tokens in the vocabulary, H hidden size. Row 0 of `Scores` follows the last
committed token, row i + 1 follows node i.

`draft.py` has the tree itself; its names are imported from here, beside all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outpace.draft import EMPTY as EMPTY
from outpace.draft import PLAIN as PLAIN
from outpace.draft import Array as Array
from outpace.draft import Budget as Budget
from outpace.draft import Draft as Draft
from outpace.draft import Law as Law
from outpace.draft import Verdict as Verdict


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request starts from: `ids`, and for an encoder-decoder its `source` (ids, or [frames, channels]).

    expected: the answer as the caller expects it, for drafters to copy from; the text is the target's all the same.
    """

    ids: tuple[int, ...]
    source: Array | None = None
    expected: tuple[int, ...] = ()

    def copyable(self, context: int) -> tuple[int, ...]:
        """Returns the prompt behind what may be copied: the expected answer, as if it had followed the prompt's last
        `context` tokens once before."""
        return (*self.ids[-context:], *self.expected, *self.ids) if self.expected else self.ids


@dataclass(frozen=True, slots=True)
class Scores:
    """What one target pass says about a draft: logits [N+1, V] f32, and the tapped hidden states [N+1, taps, H]."""

    logits: Array
    hidden: Array | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one round: drafting, the target's pass, and the verdict (laws, rule, commit, bookkeeping).

    rows: of that pass where other requests share it; 0 = those of the draft and one.
    """

    draft: float = 0.0
    score: float = 0.0
    verify: float = 0.0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The record of one round. Text, metrics, traces, server, audit and bench read only the stream of these.

    tokens: what was committed, after the cut. finish: None, "stop" (EOS, stop id or stop string) or "length".
    """

    draft: Draft
    verdict: Verdict
    tokens: tuple[int, ...]
    finish: str | None
    seconds: Timing

    @property
    def drafted(self) -> int:
        """Verified draft tokens, whether or not a stop cut the step."""
        return self.draft.verified

    @property
    def accepted(self) -> int:
        """Draft tokens committed as accepted; a cut turns the last kept one into `next_token`."""
        return len(self.verdict.path)


@dataclass(frozen=True, slots=True)
class Context:
    """What opening a target session learned: tapped hidden states [len(ids) - 1, taps, H], and encoder output."""

    hidden: Array | None = None
    encoded: Array | None = None


class Noise(Protocol):
    """The randomness of one round of one request; counter-based, so that a draw depends on its key alone.

    Keys are (seed, choice, purpose, tokens committed when the round began, node), with node -1 for the root.
    """

    def accept(self, purpose: int, node: int, p: Array, q: Array) -> bool:
        """Returns True with probability min(1, p / q) of two numbers: whether u q < p, strictly, for a fresh u."""
        ...

    def categorical(self, purpose: int, node: int, probs: Array) -> int:
        """Returns a token drawn from `probs` [V] (non-negative, any positive sum)."""
        ...


class LawMaker(Protocol):
    """Turns scores into laws: one for each row, seeing the committed tokens and the node's own path.

    takes_argmax: every draw is the row's largest logit, whatever came before, so a drafter need not ask for it.
    temperature: of the laws; 0 where nothing is drawn.
    shared_noise: (seed, choice) of the noise that the target draws with, where a drafter may look at it: under a rule
        that shares noise any draft keeps the text. None under other rules, and where nothing is drawn.
    """

    @property
    def temperature(self) -> float: ...

    @property
    def takes_argmax(self) -> bool: ...

    @property
    def shared_noise(self) -> tuple[int, int] | None: ...

    def __call__(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[Law]:
        """Returns [N+1] laws; row 0 is the law after the last committed token."""
        ...

    def draw_all(self, scores: Scores, committed: Sequence[int], draft: Draft) -> Sequence[int]:
        """Returns [N+1] what `draw()` of each law returns, with one transfer from the device."""
        ...

    def after(self, logits: Array, committed: Sequence[int], path: Sequence[int]) -> Law:
        """Returns the law of one row of logits [V], the one that follows `path` after the committed tokens.

        For drafters that draw a token at a time: `len(committed)` is the count when the round began, and
        len(path) - 1 the node (-1 = root), so the place that keys the draw's noise is known.
        """
        ...


class Rule(Protocol):
    """A pure function: (draft, laws, noise) -> the accepted path and the next token.

    lossless: the emitted tokens have exactly the target's law. shares_noise: the rule draws each token with the
    plain sampler's own noise, so the text depends on the seed alone, and a drafter should draw with it too.
    verifies_trees: it takes any tree; otherwise chains only.
    """

    name: str
    lossless: bool
    shares_noise: bool
    verifies_trees: bool

    def __call__(self, draft: Draft, laws: Sequence[Law], noise: Noise) -> Verdict: ...


class TargetSession(Protocol):
    """One request on one target. Invariant: between calls the cache holds every committed token except the last."""

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        ...

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        """Keeps the last token and the accepted path in the cache, forgets every other node."""
        ...

    def rewind(self, length: int, last: int) -> None:
        """Forgets what follows the first `length` cached tokens; `last` becomes the last committed token.

        Absolute, so that repeating it changes nothing. A drafter commits its own guesses one by one and
        rewinds to what the target accepted. Raises UsageError when `length` is not in [0, self.length].
        """
        ...

    def close(self) -> None:
        """Gives the cache back; the target may keep its committed prefix for later prompts."""
        ...


@runtime_checkable
class Target(Protocol):
    """The model whose output must be reproduced.

    bit_exact: a row's logits depend on the tokens of its own path only, to the last bit.
    weight_bytes: bytes of weights that one pass reads. threads: how many its passes run on.
    """

    name: str
    engine: str
    threads: int
    vocab_size: int
    eos_ids: frozenset[int]
    max_length: int
    scores_trees: bool
    hidden_layers: int
    bit_exact: bool
    weight_bytes: int

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        """Returns a session whose cache holds all of the prompt but its last token.

        Raises ContextOverflow when the prompt is empty or does not fit.
        """
        ...

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        """Returns the scores of each draft: one forward over [last token] + nodes of every request."""
        ...


class DraftSession(Protocol):
    """The drafter's state for one request."""

    def observe(self, step: Step, scores: Scores) -> None:
        """Learns what the round committed; `scores` are the target's, valid during this call."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens within a budget, and says from which law each was drawn.

    taps: the layers of the target whose hidden states it needs. self_limiting: it honours
    `Budget.min_path_probability`, so a deep budget costs nothing where it has little to say. drafts_trees: it may
    branch unless the budget is for chains.
    A drafter that draws from a law masks ids beyond its `vocab_size` before it draws, never after.
    """

    name: str
    vocab_size: int
    drafts_trees: bool
    self_limiting: bool
    taps: tuple[int, ...]
    weight_bytes: int

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        """Returns a session; cheap: a prefill of its own waits for the first budget above 0."""
        ...

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        """Returns one draft a request; empty where it has nothing to say or the budget is 0."""
        ...


@dataclass(frozen=True, slots=True)
class Observation:
    """What an observer sees of one round, before the round's tokens join `committed`; valid during the call only."""

    step: Step
    laws: Sequence[Law]
    scores: Scores
    committed: Sequence[int]


class Guide(Protocol):
    """What one request's output must look like, as far as it concerns drafts; never raises."""

    def forced(self, committed: Sequence[int], room: int) -> Draft:
        """Returns a chain of at most `room` tokens that leave the sampler next to no choice; empty if there are none.

        It needs no drafter. Whether a token is taken is the rule's to say, as of any draft.
        """
        ...

    def fitted(self, draft: Draft, committed: Sequence[int], budget: Budget) -> Draft:
        """Returns the draft less what cannot be accepted, within the budget.

        A token that was drawn from a law stays: a rule that tests it must see it fail. What follows it goes.
        """
        ...


class Unguided:
    """The `Guide` of a request whose output may be anything."""

    def forced(self, committed: Sequence[int], room: int) -> Draft:
        return EMPTY

    def fitted(self, draft: Draft, committed: Sequence[int], budget: Budget) -> Draft:
        return draft


UNGUIDED = Unguided()


class Stopper(Protocol):
    """One request's end: EOS, stop ids, stop strings."""

    def __call__(self, token: int) -> str | None:
        """Returns "stop" when the text ends with this token, else None; sees each committed token once, in order."""
        ...


class Controller(Protocol):
    """Sets the budget of the next draft from what was observed."""

    def budget(self, load: int) -> Budget:
        """Returns the next budget when `load` requests share the pass."""
        ...

    def observe(self, step: Step) -> None: ...

    def reason(self) -> str:
        """Returns in a few words why the budget is what it is, for the summary line."""
        ...
