"""`model.generate` by our loop: the decoding method is ours, everything around it is transformers' own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter as clock
from typing import Any

import torch
from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from outpace.costs import CostProfile
from outpace.decode import Round, propose
from outpace.errors import Unsupported, UsageError
from outpace.hf.settings import Collected, Criteria, Place, Processors, check, rows_of
from outpace.noise import RoundNoise
from outpace.options import AUTO, Options, Plan, plan
from outpace.sampling import Sampler
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_models import own_length
from outpace.targets.torch_seq2seq import Encoded, TorchSeq2Seq
from outpace.targets.torch_static import nothing_recorded
from outpace.types import Drafter, Prompt, Step, Target

ATTRIBUTE = "outpace"
"""Where an accelerated model keeps its `Accelerated`."""


def accelerate(
    model: Any,
    drafter: str = AUTO,
    *,
    draft: Any = None,
    draft_length: int | None = None,
    rule: str = "coupled",
) -> Any:
    """Returns the model, whose `generate` now drafts and verifies; calls, settings and outputs stay as they were.

    drafter: a name as in `Model.generate`; "auto" drafts with `draft`, or n-grams. draft: a smaller model of
    transformers with the same vocabulary, or any Target. draft_length: tokens drafted a round; None = from measured
    costs. rule: as in `Model.generate`. Greedy output is what `generate` gives without us; sampled output has the
    same law, and is the same whatever is drafted, for torch's seed (`torch.manual_seed`). `model.outpace.steps`
    has the Steps of the last call.
    Raises Unsupported for a model that cannot be rewound, UsageError for parts that do not fit.
    """
    if hasattr(model, ATTRIBUTE):
        restore(model)
    if model.main_input_name == "input_features":
        raise Unsupported(
            f"{type(model).__name__} has a generate of its own around the decoder: load it by outpace.load(..., "
            "engine='torch') instead"
        )
    helper = draft if draft is None or isinstance(draft, Target) else _target_of(draft)
    made = Accelerated(model, drafter, helper, draft_length, rule)
    setattr(model, ATTRIBUTE, made)
    model.generate = made.generate
    return model


def restore(model: Any) -> Any:
    """Returns the model with the `generate` that it came with. Raises UsageError if it was not accelerated."""
    made = getattr(model, ATTRIBUTE, None)
    if made is None:
        raise UsageError(f"{type(model).__name__} was not accelerated: there is nothing to restore")
    del model.generate
    delattr(model, ATTRIBUTE)
    if model.config._attn_implementation != made.attention:
        model.set_attn_implementation(made.attention)
    return model


def custom_generate(
    model: Any,
    input_ids: Any,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    **model_kwargs: Any,
) -> Any:
    """Returns what `generate(..., custom_generate=custom_generate)` gives: n-gram drafts, for one call.

    The model is looked at once and keeps our masks; a streamer needs `accelerate`, since this hook is not shown it.
    """
    made = getattr(model, "_outpace_hook", None)
    if made is None:
        made = model._outpace_hook = Accelerated(model, AUTO, None, None, "coupled")
    parts = input_ids, logits_processor, stopping_criteria, generation_config
    return made.decode(*parts, made.wanted, None, model_kwargs)


def _target_of(model: Any) -> TorchTarget:
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        return TorchSeq2Seq(model, name)
    return TorchTarget(model, name, record=nothing_recorded)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Who drafts, and how much."""

    drafter: str
    draft: Target | None
    draft_length: int | None
    rule: str


@dataclass(slots=True)
class _Call:
    """One call of `generate`: who drafts, its rounds, and what is collected of them."""

    drafter: Drafter
    rounds: list[Round] = field(default_factory=list)
    padding: list[Sequence[int]] = field(default_factory=list)
    collected: list[Collected] = field(default_factory=list)


class Accelerated:
    """A model of transformers with our decoding. steps: [prompts] the Steps of the last call."""

    def __init__(self, model: Any, drafter: str, draft: Target | None, draft_length: int | None, rule: str) -> None:
        self.attention = model.config._attn_implementation
        self.target = _target_of(model)
        self.target.max_length = own_length(model)
        self.wanted = Wanted(drafter, draft, draft_length, rule)
        self.costs = CostProfile()
        self.steps: list[list[Step]] = []
        self._generate = model.generate
        self._said: set[str] = set()
        self._assistants: dict[int, Target] = {}
        self._plan(self.wanted, greedy=True, seed=0)  # what does not fit is said now

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what transformers' `generate` of this model returns, of the same type."""
        if kwargs.get("custom_generate") is not None:
            raise UsageError("custom_generate replaces outpace's decoding: call outpace.hf.restore(model) first")
        wanted = self._mapped(kwargs)
        streamer = kwargs.get("streamer")

        def decode(
            model: Any,
            input_ids: Any,
            logits_processor: Any,
            stopping_criteria: Any,
            generation_config: Any,
            **more: Any,
        ) -> Any:
            parts = input_ids, logits_processor, stopping_criteria, generation_config
            return self.decode(*parts, wanted, streamer, more)

        return self._generate(*args, custom_generate=decode, **kwargs)

    def _mapped(self, kwargs: dict[str, Any]) -> Wanted:
        """Takes transformers' own ways to ask for drafts out of the call; returns them in our terms."""
        wanted = self.wanted
        config = kwargs.get("generation_config")
        assistant = kwargs.pop("assistant_model", None)
        lookup = kwargs.pop("prompt_lookup_num_tokens", None) or getattr(config, "prompt_lookup_num_tokens", None)
        if config is not None and lookup:
            kwargs["generation_config"] = config = type(config).from_dict(config.to_dict())
            config.prompt_lookup_num_tokens = None
        if assistant is not None:
            self._say("assistant_model", "drafter 'model'")
            known = self._assistants.get(id(assistant))
            if known is None:
                known = self._assistants[id(assistant)] = _target_of(assistant)
            return Wanted("model", known, wanted.draft_length, wanted.rule)
        if lookup:
            self._say("prompt_lookup_num_tokens", "drafter 'ngram', whose length is set from measured costs")
            return Wanted("ngram", None, wanted.draft_length, wanted.rule)
        return wanted

    def _say(self, argument: str, ours: str) -> None:
        if argument not in self._said:
            self._said.add(argument)
            warnings.warn(f"{argument} is mapped to outpace's {ours}", UserWarning, stacklevel=4)

    def _plan(self, wanted: Wanted, *, greedy: bool, seed: int) -> Plan:
        options = Options(
            temperature=0.0 if greedy else 1.0,
            seed=seed,
            drafter=wanted.drafter,
            draft_length=wanted.draft_length,
            rule=wanted.rule,
        )
        return plan(options, self.target, wanted.draft, self.costs)

    def decode(
        self,
        input_ids: torch.Tensor,
        processors: Any,
        criteria: Any,
        config: Any,
        wanted: Wanted,
        streamer: Any,
        model_kwargs: dict[str, Any],
    ) -> Any:
        """Returns the sequences, or the output object: transformers' decoding method, by drafts and verdicts."""
        check(config, model_kwargs, processors, input_ids)
        greedy = not config.do_sample
        seed = 0 if greedy else int(torch.randint(0, 1 << 32, (1,), dtype=torch.int64))
        plans = [self._plan(wanted, greedy=greedy, seed=seed) for _ in input_ids]  # a controller for each
        call = _Call(plans[0].drafter)
        try:
            self._open(call, plans, input_ids, processors, criteria, config, model_kwargs)
            self._run(call, streamer)
        finally:
            for one in call.rounds:
                one.session.close()
        return _output(call, input_ids, config, model_kwargs)

    def _open(
        self,
        call: _Call,
        plans: Sequence[Plan],
        input_ids: torch.Tensor,
        processors: Any,
        criteria: Any,
        config: Any,
        model_kwargs: dict[str, Any],
    ) -> None:
        encoder_decoder = isinstance(self.target, TorchSeq2Seq)
        mask = model_kwargs.get("attention_mask")
        rows = rows_of(input_ids, None if encoder_decoder else mask)
        if config.max_length - min(len(padding) for padding, _ in rows) > self.target.max_length:
            raise UsageError(
                f"max_length must be at most {self.target.max_length}, what the model was made for, got "
                f"{config.max_length}"
            )
        for i, (padding, ids) in enumerate(rows):
            place = Place(i, len(rows), padding, input_ids.device)
            ours = Processors(processors, place) if len(processors) else None
            collected = Collected(ours, input_ids.device)
            observes = config.return_dict_in_generate and (config.output_scores or config.output_logits)
            stop = Criteria(criteria, input_ids[i].tolist(), place)
            source = self._source(model_kwargs, i) if encoder_decoder else None
            parts = call.drafter, Prompt(tuple(ids), source), ours
            one = self._round(plans[i], i, parts, stop, collected if observes else None)
            one.limit = config.max_length - len(padding)
            call.rounds.append(one)
            call.padding.append(padding)
            call.collected.append(collected)

    def _source(self, model_kwargs: dict[str, Any], row: int) -> Encoded:
        states = model_kwargs["encoder_outputs"].last_hidden_state[row : row + 1]
        mask = model_kwargs.get("attention_mask")
        own = None if mask is None or bool(mask[row].all()) else mask[row : row + 1]
        return Encoded(states, own, self.target.model.get_encoder())

    def _round(
        self,
        chosen: Plan,
        choice: int,
        parts: tuple[Drafter, Prompt, Processors | None],
        stop: Criteria,
        observer: Callable[[Any], None] | None,
    ) -> Round:
        drafter, prompt, processors = parts
        seed, rule = chosen.seed, chosen.rule
        ours = () if processors is None else (processors,)
        laws = Sampler(chosen.params, seed, choice, processors=ours)
        own = laws if rule.shares_noise else Sampler(chosen.params, seed, choice, shares_noise=False, processors=ours)
        session, context = self.target.open(prompt, drafter.taps)
        return Round(
            session=session,
            drafting=drafter.open(prompt, context, own),
            committed=list(prompt.ids),
            limit=self.target.max_length,
            vocab_size=self.target.vocab_size,
            laws=laws,
            rule=rule,
            noise=lambda committed: RoundNoise(seed, choice, committed),
            controller=chosen.controller,
            stop=stop,
            observer=observer,
        )

    def _run(self, call: _Call, streamer: Any) -> None:
        """Drives all rounds in common passes; one prompt's tokens are streamed as they are committed."""
        self.steps = [[] for _ in call.rounds]
        while active := [(i, one) for i, one in enumerate(call.rounds) if not one.finish]:
            start = clock()
            drafts = propose(call.drafter, [one for _, one in active])
            drafted = clock()
            work = [(one.session, draft) for (_, one), draft in zip(active, drafts, strict=True)]
            found = self.target.score_many(work)
            scored = clock()
            rows = sum(1 + len(draft) for draft in drafts)
            for (i, one), draft, scores in zip(active, drafts, found, strict=True):
                step = one.advance(draft, scores, drafted - start, scored - drafted, rows)
                self.steps[i].append(step)
                for token in step.tokens if streamer is not None else ():
                    streamer.put(torch.tensor([token]))
        if streamer is not None:
            streamer.end()


def _output(call: _Call, input_ids: torch.Tensor, config: Any, model_kwargs: dict[str, Any]) -> Any:
    rows = [[*padding, *one.committed] for padding, one in zip(call.padding, call.rounds, strict=True)]
    longest = max(map(len, rows))
    pad = config._pad_token_tensor
    filler = 0 if pad is None else int(pad)
    padded = [[*row, *[filler] * (longest - len(row))] for row in rows]
    sequences = torch.tensor(padded, device=input_ids.device, dtype=input_ids.dtype)
    if not config.return_dict_in_generate:
        return sequences
    collected = call.collected[0]
    scores = tuple(collected.scores) if config.output_scores else None
    logits = tuple(collected.logits) if config.output_logits else None
    if "encoder_outputs" in model_kwargs:
        return GenerateEncoderDecoderOutput(sequences=sequences, scores=scores, logits=logits)
    return GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, logits=logits)
