"""The real loop, drawn from many times: rounds, rules, samplers and noise as they are, with a seed a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from outpace.control import FixedController
from outpace.decode import Round, propose
from outpace.noise import RoundNoise
from outpace.processors import Adjuster, Adjustments
from outpace.sampling import Sampler, SamplingParams
from outpace.types import Controller, Drafter, LawMaker, Noise, Prompt, Rule, Target

Tokens: TypeAlias = tuple[int, ...]
NoiseOf: TypeAlias = Callable[[int, int], Noise]
"""(seed, tokens committed when the round began) -> its noise."""
LawsOf: TypeAlias = Callable[[Sampler], LawMaker]
"""What the target's laws are made by, given the right sampler."""

BATCH = 32


def right_noise(seed: int, committed: int) -> Noise:
    """Returns a round's noise as decoding has it."""
    return RoundNoise(seed, 0, committed)


@dataclass(frozen=True, slots=True)
class Loop:
    """A way of decoding `horizon` tokens after a prompt. controller: makes one for each text.

    noise, laws: as decoding has them, unless this is a mutant.
    """

    target: Target
    drafter: Drafter
    rule: Rule
    prompt: Tokens
    horizon: int
    params: SamplingParams = field(default_factory=SamplingParams)
    adjustments: Adjustments = field(default_factory=Adjustments)
    controller: Callable[[], Controller] = lambda: FixedController(3)
    noise: NoiseOf = right_noise
    laws: LawsOf = lambda sampler: sampler

    def counts(self, seeds: Sequence[int]) -> Counter[Tokens]:
        """Returns how often each text of `horizon` tokens came."""
        return Counter(self.texts(seeds))

    def texts(self, seeds: Sequence[int]) -> Iterator[Tokens]:
        """Yields one text of `horizon` tokens for each seed; some requests at a time share each pass."""
        for start in range(0, len(seeds), BATCH):
            rounds = [self._open(seed) for seed in seeds[start : start + BATCH]]
            while active := [one for one in rounds if not self._done(one)]:
                drafts = propose(self.drafter, active)
                scores = self.target.score_many([(r.session, d) for r, d in zip(active, drafts, strict=True)])
                rows = sum(1 + len(draft) for draft in drafts)
                for one, draft, score in zip(active, drafts, scores, strict=True):
                    one.advance(draft, score, 0.0, 0.0, rows)
            for one in rounds:
                one.session.close()
                if one.drafting is not None:
                    one.drafting.close()
                if one.fault:
                    raise RuntimeError(f"the drafter was dropped: {one.fault}")
                yield tuple(one.committed[len(self.prompt) : len(self.prompt) + self.horizon])

    def _done(self, one: Round) -> bool:
        return len(one.committed) >= len(self.prompt) + self.horizon

    def _open(self, seed: int) -> Round:
        processors = () if self.adjustments.idle else (Adjuster(self.adjustments, len(self.prompt)),)
        params = replace(self.params, seed=seed)
        shared = self.rule.shares_noise
        right = Sampler(params, seed, processors=processors)
        session, context = self.target.open(Prompt(self.prompt), self.drafter.taps)
        own = right if shared else Sampler(params, seed, shares_noise=False, processors=processors)
        return Round(
            session=session,
            drafting=self.drafter.open(Prompt(self.prompt), context, own),
            committed=list(self.prompt),
            limit=self.target.max_length,
            vocab_size=self.target.vocab_size,
            laws=self.laws(right),
            rule=self.rule,
            noise=lambda committed: self.noise(seed, committed),
            controller=self.controller(),
            stop=lambda token: None,
        )
