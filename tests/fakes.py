"""A target with known laws, and drafters that are right, wrong or hostile on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from outpace.control import FixedController
from outpace.decode import Round, generate
from outpace.drafters.none import NoDrafts
from outpace.errors import ContextOverflow, UsageError
from outpace.noise import RoundNoise
from outpace.processors import Adjuster, Adjustments
from outpace.rules import RULES
from outpace.sampling import Sampler, SamplingParams
from outpace.types import (
    EMPTY,
    Array,
    Budget,
    Context,
    Draft,
    Drafter,
    DraftSession,
    LawMaker,
    Observation,
    Prompt,
    Scores,
    Step,
    Target,
    TargetSession,
    Verdict,
)


class TableTarget:
    """A target whose next-token law is a fixed function of the last `order` tokens of the path.

    Every session checks its own cache at each call, and a token outside the vocabulary is an AssertionError.
    `work` counts the passes and the rows that were scored.
    """

    engine = "fake"
    threads = 1
    scores_trees = True
    hidden_layers = 0
    bit_exact = True

    def __init__(
        self,
        vocab_size: int = 6,
        *,
        order: int = 3,
        seed: int = 0,
        spread: float = 1.5,
        eos_ids: Sequence[int] = (),
        max_length: int = 4096,
        logits: Callable[[tuple[int, ...]], Array] | None = None,
    ) -> None:
        self.name = f"table-{vocab_size}-{order}-{seed}"
        self.vocab_size = vocab_size
        self.eos_ids = frozenset(eos_ids)
        self.max_length = max_length
        self.weight_bytes = 1000 * vocab_size
        self.passes = 0
        self.rows = 0
        self.open_sessions = 0
        self._order = order
        self._seed = seed
        self._spread = spread
        self._given = logits
        self._table: dict[tuple[int, ...], Array] = {}

    def logits(self, path: Sequence[int]) -> Array:
        """Returns [V] f32, the logits after `path`."""
        key = tuple(path[-self._order :])
        row = self._table.get(key)
        if row is None:
            if self._given is not None:
                row = np.asarray(self._given(key), dtype=np.float32)
            else:
                rng = np.random.default_rng([self._seed, self.vocab_size, len(key), *key])
                row = (self._spread * rng.standard_normal(self.vocab_size)).astype(np.float32)
            self._table[key] = row
        return row

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TargetSession, Context]:
        if not 1 <= len(prompt.ids) <= self.max_length:
            raise ContextOverflow(f"a prompt must have 1 to {self.max_length} tokens, got {len(prompt.ids)}")
        assert not taps
        self.open_sessions += 1
        return TableSession(self, prompt.ids), Context()

    def early_exit(self) -> TableTarget:
        """Returns what the last token alone says."""
        return TableTarget(self.vocab_size, order=1, seed=self._seed)

    def at_fewer_bits(self) -> TableTarget:
        """Returns the same law, rounded."""
        rounded = TableTarget(self.vocab_size, logits=lambda path: np.round(self.logits(path)))
        rounded._order = self._order
        return rounded

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        self.passes += 1
        return [session._score(draft) for session, draft in work]  # type: ignore[attr-defined]


class TableSession:
    """The cache is a list of tokens; the last committed one is kept apart, as it is not in the cache."""

    def __init__(self, target: TableTarget, ids: Sequence[int]) -> None:
        self.target = target
        self.cache = list(ids[:-1])
        self.last = ids[-1]
        self.scored: Draft | None = None
        self.closed = False

    @property
    def length(self) -> int:
        return len(self.cache)

    def _score(self, draft: Draft) -> Scores:
        assert not self.closed
        assert all(0 <= token < self.target.vocab_size for token in draft.tokens)
        assert self.length + 1 + draft.depth <= self.target.max_length
        self.target.rows += 1 + len(draft)
        base = [*self.cache, self.last]
        paths = [[draft.tokens[i] for i in draft.path_to(node)] for node in range(-1, len(draft))]
        rows = [self.target.logits(base + path) for path in paths]
        self.scored = draft
        return Scores(np.stack(rows))

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        assert not self.closed
        assert self.scored is draft, "only what was scored can be committed"
        assert all(draft.parents[b] == a for a, b in zip((-1, *verdict.path), verdict.path, strict=False))
        self.cache += [self.last, *(draft.tokens[node] for node in verdict.path)]
        self.last = verdict.next_token
        self.scored = None

    def rewind(self, length: int, last: int) -> None:
        assert not self.closed
        if not 0 <= length <= self.length:
            raise UsageError(f"length must be in [0, {self.length}], got {length}")
        del self.cache[length:]
        self.last = last
        self.scored = None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.target.open_sessions -= 1


class FakeDraftSession:
    """Follows the committed tokens; `drafts` yields the next proposal for them."""

    def __init__(self, prompt: Prompt, drafts: Callable[[list[int], Budget], Draft]) -> None:
        self.tokens = list(prompt.ids)
        self.drafts = drafts

    def observe(self, step: Step, scores: Scores) -> None:
        self.tokens += step.tokens

    def close(self) -> None:
        pass


class FakeDrafter:
    """A drafter that is a function of the committed tokens and the budget."""

    drafts_trees = True
    self_limiting = False
    taps: tuple[int, ...] = ()
    weight_bytes = 0

    def __init__(self, name: str, vocab_size: int, drafts: Callable[[list[int], Budget], Draft]) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self._drafts = drafts

    def open(self, prompt: Prompt, context: Context, laws: LawMaker) -> DraftSession:
        return FakeDraftSession(prompt, self._drafts)

    def propose_many(self, work: Sequence[tuple[DraftSession, Budget]]) -> list[Draft]:
        return [
            session.drafts(session.tokens, budget) if budget.depth else EMPTY  # type: ignore[attr-defined]
            for session, budget in work
        ]


PATTERNS = ("RRRW", "WRRR", "R", "W", "", "RX", "XRR", "RRN")


def scripted(truth: Sequence[int], vocab_size: int, pattern: str) -> FakeDrafter:
    """Returns a drafter that knows the whole text (`truth`: prompt and continuation) and follows a pattern.

    Each draft starts the pattern anew and repeats it: R right, W wrong, X an id beyond the vocabulary,
    N a negative id; "" proposes nothing.
    """

    def drafts(tokens: list[int], budget: Budget) -> Draft:
        if not pattern:
            return EMPTY
        guesses = []
        for i, right in enumerate(truth[len(tokens) : len(tokens) + budget.depth]):
            mark = pattern[i % len(pattern)]
            guesses.append({"R": right, "W": (right + 1) % vocab_size, "X": vocab_size + 3, "N": -1}[mark])
        return Draft.chain(guesses)

    return FakeDrafter(f"scripted-{pattern or 'empty'}", vocab_size, drafts)


def adversarial(vocab_size: int, seed: int = 0, *, legal: bool = False) -> FakeDrafter:
    """Returns a drafter of random trees with duplicates and probes; unless `legal`, also foreign ids and too much."""

    def drafts(tokens: list[int], budget: Budget) -> Draft:
        rng = Random(f"{seed} {tokens}")
        count = rng.randint(0, budget.nodes if legal else budget.nodes + 3)
        depths: list[int] = []
        parents: list[int] = []
        for node in range(count):
            open_nodes = [i for i in range(node) if not legal or depths[i] < budget.depth]
            parent = rng.choice([-1, *open_nodes])
            parents.append(parent)
            depths.append(1 if parent < 0 else depths[parent] + 1)
        low, high = (0, vocab_size - 1) if legal else (-2, vocab_size + 2)
        ids = tuple(rng.randint(low, high) for _ in range(count))
        return Draft(ids, tuple(parents), (None,) * count, probes=rng.randint(0, min(count, 2)))

    return FakeDrafter("adversarial", vocab_size, drafts)


def raising(vocab_size: int, after: int) -> FakeDrafter:
    """Returns a drafter that raises RuntimeError from its proposal number `after` (from 0) on."""
    calls: Iterator[int] = iter(range(1 << 30))

    def drafts(tokens: list[int], budget: Budget) -> Draft:
        if next(calls) >= after:
            raise RuntimeError("the drafter broke")
        return Draft.chain([0] * budget.depth)

    return FakeDrafter("raising", vocab_size, drafts)


def start(
    target: Target,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    draft_length: int = 4,
    rule: str = "coupled",
    temperature: float = 0.0,
    seed: int = 1,
    choice: int = 0,
    max_tokens: int = 40,
    stop: Callable[[int], str | None] | None = None,
    observer: Callable[[Observation], None] | None = None,
    adjustments: Adjustments | None = None,
    source: Any = None,
    expected: Sequence[int] = (),
) -> Round:
    """Returns a request, ready for its first round."""
    processors = () if adjustments is None else (Adjuster(adjustments, len(prompt)),)
    params = SamplingParams(temperature=temperature, seed=seed)
    shares_noise = RULES[rule].shares_noise
    asked = Prompt(tuple(prompt), source, tuple(expected))
    session, context = target.open(asked, drafter.taps)
    draft_laws = Sampler(params, seed, choice, shares_noise=shares_noise, processors=processors)
    drafting = drafter.open(asked, context, draft_laws)
    return Round(
        session=session,
        drafting=drafting,
        committed=list(prompt),
        limit=min(len(prompt) + max_tokens, target.max_length),
        vocab_size=target.vocab_size,
        laws=Sampler(params, seed, choice, processors=processors),
        rule=RULES[rule],
        noise=lambda committed: RoundNoise(seed, choice, committed),
        controller=FixedController(draft_length, chains=not RULES[rule].verifies_trees),
        stop=stop or (lambda token: "stop" if token in target.eos_ids else None),
        observer=observer,
    )


def run(target: Target, prompt: Sequence[int], drafter: Drafter, **options: Any) -> tuple[Round, list[Step]]:
    """Returns the finished request and its Steps."""
    one = start(target, prompt, drafter, **options)
    return one, list(generate(one, target, drafter))


def plain(target: Target, prompt: Sequence[int], **options: Any) -> list[int]:
    """Returns the prompt and its plain continuation."""
    return run(target, prompt, NoDrafts(target.vocab_size), **options)[0].committed
