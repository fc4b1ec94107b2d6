"""One round of speculative decoding, in two halves, so that one process can drive one request or many:

Round.budget -> drafter.propose_many -> target.score_many -> Round.advance -> Step. An empty draft is plain decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter as clock

from outpace import types as t


@dataclass(slots=True)
class Round:
    """One request: what is committed, and the parts that turn scores into the next Step.

    committed: prompt and output; `limit` is the most it may hold, by max_tokens and the context.
    noise: of a round that begins with so many committed tokens. fault: why the drafter was dropped, if it was.
    """

    session: t.TargetSession
    drafting: t.DraftSession | None
    committed: list[int]
    limit: int
    vocab_size: int
    laws: t.LawMaker
    rule: t.Rule
    noise: Callable[[int], t.Noise]
    controller: t.Controller
    stop: t.Stopper
    observer: Callable[[t.Observation], None] | None = None
    guide: t.Guide = t.UNGUIDED
    forced: t.Draft = t.EMPTY  # what this round drafts without its drafter
    finish: str | None = None
    fault: str | None = None

    def budget(self, load: int = 1) -> t.Budget:
        """Returns what may be drafted now: a draft of n tokens commits up to n + 1."""
        self.forced = self.guide.forced(self.committed, room := self.limit - len(self.committed) - 1)
        plain = self.drafting is None or len(self.forced) > 0
        return t.PLAIN if plain else self.controller.budget(load).clipped(room)

    def advance(self, draft: t.Draft, scores: t.Scores, drafted: float, scored: float, rows: int = 0) -> t.Step:
        """Returns the Step that the scores decide. drafted, scored: seconds so far. rows: of a shared pass."""
        start = clock()
        laws = self.laws(scores, self.committed, draft)
        verdict = self.rule(draft, laws, self.noise(len(self.committed)))
        tokens = verdict.tokens(draft)
        for keep, token in enumerate(tokens, 1):  # the one cut, before cache, statistics and stream
            self.finish = self.stop(token) or ("length" if len(self.committed) + keep >= self.limit else None)
            if self.finish:
                verdict, tokens = verdict.cut(keep, draft), tokens[:keep]
                break
        self.session.commit(draft, verdict)
        step = t.Step(draft, verdict, tokens, self.finish, t.Timing(drafted, scored, clock() - start, rows))
        if self.observer:
            self.observer(t.Observation(step, laws, scores, self.committed))
        self.committed.extend(tokens)
        if not self.forced:  # which say nothing of the drafter
            self.controller.observe(step)
        if self.drafting:
            try:
                self.drafting.observe(step, scores)
            except Exception as error:
                self.drop_drafter(error)
        return step

    def drop_drafter(self, error: Exception) -> None:
        """Makes this request plain from here on."""
        self.drafting, self.fault = None, f"{type(error).__name__}: {error}"


def propose(drafter: t.Drafter, rounds: Sequence[Round], load: int = 0) -> list[t.Draft]:
    """Returns one draft a round; a request whose drafter raises is plain from here on, and its `fault` says why."""
    try:
        return _ask(drafter, [(one, one.budget(load or len(rounds))) for one in rounds])
    except Exception as error:  # one request's fault must not reach the others
        if len(rounds) == 1:
            rounds[0].drop_drafter(error)
    return [propose(drafter, [one], load or len(rounds))[0] for one in rounds]


def _ask(drafter: t.Drafter, budgets: Sequence[tuple[Round, t.Budget]]) -> list[t.Draft]:
    work = [(one.drafting, budget) for one, budget in budgets if one.drafting and budget.depth]
    drafts = iter(drafter.propose_many(work)) if work else iter(())
    fitted = ((next(drafts) if b.depth else t.EMPTY).fitting(b, one.vocab_size) for one, b in budgets)
    return [one.forced or one.guide.fitted(d, one.committed, b) for d, (one, b) in zip(fitted, budgets, strict=True)]


def generate(one: Round, target: t.Target, drafter: t.Drafter) -> Generator[t.Step, None, None]:
    """Yields the Steps of one request until it finishes."""
    while not one.finish:
        start = clock()
        [draft] = propose(drafter, [one])
        drafted = clock()
        [scores] = target.score_many([(one.session, draft)])
        scored = clock()
        yield one.advance(draft, scores, drafted - start, scored - drafted)
