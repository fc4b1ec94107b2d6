"""One request from its ids to its result: sets up a Round, drives it, turns its Steps into text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter as clock
from typing import Any

from outpace.decode import Round, generate, propose
from outpace.errors import ContextOverflow
from outpace.estimates import Expecting
from outpace.logprobs import LogprobObserver
from outpace.noise import RoundNoise
from outpace.options import Plan
from outpace.processors import Adjuster
from outpace.result import Chunk, Result, Seconds, without_laws
from outpace.sampling import Sampler
from outpace.text import Text, TextStream
from outpace.types import UNGUIDED, Context, Observation, Prompt, Step, Target, TargetSession


class Ending:
    """A request's `Stopper`; also keeps what each token added to the text.

    endings: tokens that end it. In the text of the first `min_tokens` tokens no stop string is looked for. Without
    one to look for, tokens become text when it is taken, not between two passes.
    """

    def __init__(self, stream: TextStream, endings: frozenset[int], min_tokens: int = 0) -> None:
        self._stream = stream
        self._endings = endings
        self._unsearched = min_tokens
        self._unread: list[int] = []
        self._pieces: list[str] = []

    def __call__(self, token: int) -> str | None:
        if token in self._endings:
            self._read()
            self._pieces.append("")
            return "stop"
        if not self._stream.has_stops:
            self._unread.append(token)
            return None
        piece, stopped = self._stream.feed(token, search=self._unsearched <= 0)
        self._unsearched -= 1
        self._pieces.append(piece)
        return "stop" if stopped else None

    def _read(self) -> None:
        self._pieces += [self._stream.feed(token)[0] for token in self._unread]
        self._unread.clear()

    def take(self, last: bool) -> tuple[str, ...]:
        """Returns the pieces since the last call; with `last`, what was held back joins the last of them."""
        self._read()
        if last and self._pieces:
            self._pieces[-1] += self._stream.finish()
        pieces, self._pieces = tuple(self._pieces), []
        return pieces


def check_room(ids: Sequence[int], target: Target) -> None:
    """Raises ContextOverflow when the prompt leaves no room for a token."""
    if len(ids) >= target.max_length:
        raise ContextOverflow(
            f"the prompt has {len(ids)} tokens and the context holds {target.max_length}: shorten the prompt "
            "or set a larger context"
        )


class Generation(Iterator[Chunk]):
    """An iterator of Chunks, one a round. `result()` has the figures once it is exhausted; `close()` ends it early.

    opened: what `target.open` returned for the prompt, if it was opened already; the generation closes it.
    source: what an encoder reads; None for a decoder alone. expected: the answer as the caller expects it.
    on_end: called with the text when the generation has finished by itself.
    """

    def __init__(
        self,
        target: Target,
        text: Text,
        ids: Sequence[int],
        plan: Plan,
        *,
        max_tokens: int,
        stop: Sequence[str],
        logprobs: int | None = None,
        observer: Callable[[Observation], None] | None,
        load_seconds: float,
        opened: tuple[TargetSession, Context] | None = None,
        source: Any = None,
        expected: tuple[int, ...] = (),
    ) -> None:
        check_room(ids, target)
        self.on_end: Callable[[str], None] | None = None
        self._target = target
        self.plan = plan
        self._ids = tuple(ids)
        self._prompt = Prompt(self._ids, source, expected)
        self._load_seconds = load_seconds
        self._ending = Ending(text.stream(stop), plan.endings, plan.adjustments.min_tokens)
        self._logprobs = None if logprobs is None else LogprobObserver(logprobs, observer)
        self._steps: list[Step] = []
        self._texts: list[str] = []
        self._decode_seconds = 0.0
        start = clock()
        self.round = self._open(max_tokens, self._logprobs or observer, opened)
        self._prefill_seconds = clock() - start
        self._drafting = self.round.drafting
        self._rounds = generate(self.round, target, plan.drafter)

    def _open(
        self,
        max_tokens: int,
        observer: Callable[[Observation], None] | None,
        opened: tuple[TargetSession, Context] | None,
    ) -> Round:
        target, plan, prompt = self._target, self.plan, self._prompt
        processors = () if plan.adjustments.idle else (Adjuster(plan.adjustments, len(self._ids)),)

        constraint = plan.grammar.start(len(self._ids), plan.forced) if plan.grammar else None

        def sampler(shares_noise: bool) -> Sampler:
            return Sampler(
                plan.params,
                plan.seed,
                plan.choice,
                shares_noise=shares_noise,
                processors=processors,
                constraint=constraint,
            )

        laws = sampler(True)
        session, context = opened or target.open(prompt, plan.drafter.taps)
        try:
            # Under a rule that shares noise the drafter draws with the target's own; else with a noise of its own.
            shared = plan.rule.shares_noise
            drafting = plan.drafter.open(prompt, context, laws if shared else sampler(False))
        except BaseException:
            session.close()
            raise
        unused = RoundNoise(plan.seed)
        return Round(
            session=session,
            drafting=drafting,
            committed=list(self._ids),
            limit=min(len(self._ids) + max_tokens, target.max_length),
            vocab_size=target.vocab_size,
            laws=laws,
            rule=plan.rule,
            noise=(lambda committed: unused)
            if shared
            else (lambda committed: RoundNoise(plan.seed, plan.choice, committed)),
            controller=plan.controller,
            stop=self._ending,
            observer=observer,
            guide=constraint if constraint and plan.forced else UNGUIDED,
        )

    def __next__(self) -> Chunk:
        start = clock()
        try:
            step = next(self._rounds)
        except StopIteration:
            self._ended()
            raise
        except BaseException:
            self.close()
            raise
        chunk = self.take(step)
        self._decode_seconds += clock() - start
        return chunk

    def run(self) -> Result:
        """Returns the result after all rounds that are left; what iterating gives, at less cost a round."""
        start = clock()
        try:
            for step in self._rounds:
                self._steps.append(without_laws(step))
        except BaseException:
            self.close()
            raise
        self._texts += self._ending.take(last=True)
        self._decode_seconds += clock() - start
        self._ended()
        return self.result()

    def _ended(self) -> None:
        self.close()
        if self.round.finish and self.on_end:
            self.on_end("".join(self._texts))
            self.on_end = None

    def take(self, step: Step) -> Chunk:
        """Returns the text of a Step of `round`, for a driver that advances several requests itself."""
        step = without_laws(step)
        self._steps.append(step)
        logprobs = None if self._logprobs is None else tuple(self._logprobs.found[-len(step.tokens) :])
        chunk = Chunk(self._ending.take(last=step.finish is not None), step, logprobs)
        self._texts.append(chunk.text)
        return chunk

    def close(self) -> None:
        """Gives the caches back; what was generated so far keeps its result."""
        self._rounds.close()
        self.round.session.close()
        if self._drafting is not None:
            self._drafting.close()

    def result(self) -> Result:
        """Returns the generation so far, `finish` being "cancelled" when it was closed early."""
        steps, plan, target = self._steps, self.plan, self._target
        tokens = tuple(self.round.committed[len(self._ids) :])
        rows = sum(1 + len(step.draft) for step in steps)
        drafted = sum(len(step.draft) for step in steps)
        share = plan.drafter.weight_bytes / target.weight_bytes if target.weight_bytes else 0.0
        times = [step.seconds for step in steps]
        return Result(
            text="".join(self._texts),
            tokens=tokens,
            steps=tuple(steps),
            finish=self.round.finish or "cancelled",
            prompt_tokens=len(self._ids),
            seconds=Seconds(
                load=self._load_seconds,
                prefill=self._prefill_seconds,
                decode=self._decode_seconds,
                draft=sum(t.draft for t in times),
                score=sum(t.score for t in times),
                verify=sum(t.verify for t in times),
            ),
            operations_factor=(rows + share * drafted) / len(tokens) if tokens else 1.0,
            draft_bytes=plan.drafter.weight_bytes,
            reproducible=plan.reproducible,
            model=target.name,
            engine=target.engine,
            drafter=plan.drafter.name,
            rule=plan.rule.name,
            lossless=plan.rule.lossless,
            seed=plan.seed,
            choice=plan.choice,
            logprobs=None if self._logprobs is None else tuple(self._logprobs.found),
            threads=target.threads,
            reason=f"{plan.reason}; {plan.controller.reason()}",
            fault=self.round.fault,
            plain_seconds=plan.costs.plain_seconds,
            expected=plan.controller.expectation() if isinstance(plan.controller, Expecting) else None,
            predicted=self._prompt.expected,
        )


def together(requests: Sequence[Generation], target: Target) -> list[Result]:
    """Returns each request's result when all of them, of one drafter, share every pass, as a server's requests do."""
    drafter = requests[0].plan.drafter
    while active := [request for request in requests if not request.round.finish]:
        rounds = [request.round for request in active]
        drafts = propose(drafter, rounds)
        scores = target.score_many([(r.session, d) for r, d in zip(rounds, drafts, strict=True)])
        rows = sum(1 + len(draft) for draft in drafts)
        for request, draft, score in zip(active, drafts, scores, strict=True):
            request.take(request.round.advance(draft, score, 0.0, 0.0, rows))
    for request in requests:
        request.close()
    return [request.result() for request in requests]
