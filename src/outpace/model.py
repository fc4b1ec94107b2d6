"""A loaded model: what `outpace.load` returns, with `generate`, `stream` and `chat`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias

from outpace import profiles
from outpace.constraint import GrammarCompiler
from outpace.conversation import Chat
from outpace.costs import CostProfile
from outpace.errors import UsageError
from outpace.generation import Generation, check_room
from outpace.grammar import Grammar
from outpace.opening import Opened, Opening
from outpace.options import AUTO, Options, Plan, plan
from outpace.result import Result
from outpace.suffix_store import Stores
from outpace.text import Text
from outpace.types import Drafter, Observation, Target

Messages: TypeAlias = Sequence[Mapping[str, str]]
Observer: TypeAlias = Callable[[Observation], None]


class Model:
    """A loaded target with its text side, and perhaps a draft model. For one thread at a time.

    costs: what passes were found to cost here, by default nothing yet; all that one generation leaves to the next,
    besides cached prefixes and the store that was asked for.
    """

    def __init__(
        self,
        target: Target,
        text: Text,
        draft: Target | None = None,
        *,
        stores: Stores | None = None,
        costs: CostProfile | None = None,
        load_seconds: float = 0.0,
    ) -> None:
        self.target = target
        self.text = text
        self.draft = draft
        self.stores = stores or Stores()
        self._profiled = costs is not None
        self.costs = costs or CostProfile()
        self._drafters: dict[str, Drafter] = {}
        self.load_seconds = load_seconds
        self._compile_grammar = GrammarCompiler(text, target.vocab_size, text.eos_ids | target.eos_ids)

    def generate(
        self,
        prompt: str | Messages,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        banned: Sequence[int] = (),
        allowed: Sequence[int] | None = None,
        seed: int | None = None,
        choice: int = 0,
        n: int = 1,
        logprobs: int | None = None,
        stop: Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        ignore_eos: bool = False,
        min_tokens: int = 0,
        grammar: Grammar | None = None,
        drafter: str = AUTO,
        draft_length: int | None = None,
        rule: str = "coupled",
        prediction: str | None = None,
        raw: bool = False,
        system: str | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """Returns the finished generation.

        prompt: a question, or messages with `role` and `content`; with `raw`, a text to go on with, no chat template.
        temperature: 0 is greedy. Penalties, logit_bias, banned and allowed tokens: see processors.Adjustments; they
        act in that order, before temperature, top_k, top_p and min_p. seed: None draws one, and the result records
        it. n: texts to generate, choices `choice`, `choice` + 1, ... of the seed; the first is returned and has the
        `others`. logprobs: None, or how many alternatives to list beside each token's log-probability under the
        target's own law. stop: texts that end it, left out of the text. stop_ids: tokens that end it. ignore_eos: the
        model's own ending tokens do not. min_tokens: nothing ends it before this many tokens. grammar: a
        JsonSchema or Regex that the text fits, unless a stop or max_tokens ends it; needs the extra 'structured'.
        drafter: "auto", "none", "ngram", "suffix", "model", "mixture" (of the last two), "early_exit" or
        "quantized" (the target itself, in part or at 4 bits), a head ("eagle", "parallel", "medusa", "blockwise"),
        "blend" (suffixes and an "eagle" head), "published" (a head's folder as the draft) or a plugin's.
        draft_length: tokens drafted a round, at most 128; 0 is plain decoding, None is set from measured costs.
        rule: "coupled" keeps the seed's text whatever is drafted, "rejection", "block" and "traversal" keep the law;
        "typical", "lenience" and "lenience-greedy" are lossy, and the result says so.
        prediction: the text that is expected, which drafters then copy from; the answer is the same without it.
        observer: sees each round's laws and scores before it is committed.
        Raises UsageError with all that is wrong in one message, ContextOverflow when the prompt leaves no room.
        """
        wanted = Options(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=logit_bias or {},
            banned=_listed("banned", banned),
            allowed=None if allowed is None else _listed("allowed", allowed),
            seed=seed,
            choice=choice,
            n=n,
            logprobs=logprobs,
            stop=_listed("stop", stop),
            stop_ids=_listed("stop_ids", stop_ids),
            ignore_eos=ignore_eos,
            min_tokens=min_tokens,
            grammar=grammar,
            drafter=drafter,
            draft_length=draft_length,
            rule=rule,
            prediction=prediction,
        )
        choices = self._choices(self._ids(prompt, raw, system), wanted, observer)
        first, *others = [generation.run() for generation in choices]
        return replace(first, others=tuple(others))

    def stream(
        self,
        prompt: str | Messages,
        *,
        raw: bool = False,
        system: str | None = None,
        observer: Observer | None = None,
        **options: Any,
    ) -> Generation:
        """Returns an iterator of Chunks, one a round; arguments as for `generate`. Its `result()` has the figures.

        A stream is one text: n must be 1; `streams` has the others.
        """
        wanted = _wanted(options)
        if wanted.n != 1:
            raise UsageError(f"n must be 1 for one stream, got {wanted.n}: `streams` yields one for each choice")
        return self._generation(self._ids(prompt, raw, system), wanted, observer)

    def streams(
        self,
        prompt: str | Messages,
        *,
        raw: bool = False,
        system: str | None = None,
        observer: Observer | None = None,
        **options: Any,
    ) -> Iterator[Generation]:
        """Yields the `stream` of each of n choices; the next one opens when it is asked for.

        The prompt is prefilled once: the first choice leaves it in the target's cache.
        """
        yield from self._choices(self._ids(prompt, raw, system), _wanted(options), observer)

    def opening(
        self,
        prompt: str | Messages = (),
        *,
        ids: Sequence[int] | None = None,
        raw: bool = False,
        observer: Observer | None = None,
        **options: Any,
    ) -> Opening:
        """Returns the `stream` of one choice before its prompt is prefilled, for a driver of many requests.

        ids: the prompt as tokens, instead of as text. Raises what `stream` raises, less what only a prefill finds.
        """
        if getattr(self.target, "start_ids", None) is not None:
            raise UsageError(f"{self.target.name} has an encoder: it answers one request at a time, with `stream`")
        wanted = _wanted(options)
        ids = tuple(self._ids(prompt, raw, None) if ids is None else ids)
        check_room(ids, self.target)
        plan = self._plan(wanted)
        # One instance of a drafter serves all requests that name it, so that their drafts share its passes.
        plan = replace(plan, drafter=self._drafters.setdefault(plan.drafter.name, plan.drafter))
        expected = self._expected(wanted)
        return Opening(
            self.target,
            ids,
            plan,
            wanted,
            lambda opened: self._begin(ids, plan, wanted, observer, expected, opened=opened),
        )

    def _choices(self, ids: Sequence[int], wanted: Options, observer: Observer | None) -> Iterator[Generation]:
        first = self._generation(ids, wanted, observer)
        yield first
        for choice in range(wanted.choice + 1, wanted.choice + wanted.n):
            yield self._generation(ids, replace(wanted, choice=choice, seed=first.plan.seed), observer)

    def check(self, **options: Any) -> None:
        """Raises UsageError with all that is wrong with the options of `generate`, before there is a prompt."""
        self._plan(_wanted(options))

    def _plan(self, wanted: Options) -> Plan:
        known = self.text.eos_ids, self._compile_grammar, self.stores
        return plan(wanted, self.target, self.draft, self.costs, *known)

    def transcription(
        self,
        audio: str | os.PathLike[str],
        *,
        language: str = "en",
        task: str = "transcribe",
        observer: Observer | None = None,
        **options: Any,
    ) -> Generation:
        """Returns an iterator of Chunks of what a WAV file of at most 30 seconds says; for Whisper on engine torch.

        language: as Whisper abbreviates it. task: "transcribe", or "translate" into English. options: as of `stream`.
        Raises UsageError for another model and for audio that cannot be read.
        """
        listening: Any = self.target
        if not getattr(listening, "takes_features", False) or listening.folder is None:
            raise UsageError(f"{listening.name} hears nothing: audio needs a folder of Whisper and engine 'torch'")
        from outpace.hf.speech import features, read_wav

        start = listening.speech_start(language, task)
        wanted = _wanted({"banned": listening.withheld, "min_tokens": 1} | options)
        return self._generation(start, wanted, observer, features(read_wav(audio), listening.folder))

    def _generation(
        self, ids: Sequence[int], wanted: Options, observer: Observer | None, source: Any = None
    ) -> Generation:
        start = getattr(self.target, "start_ids", None)
        if start is not None and source is None:  # an encoder reads the prompt, and the decoder begins anew
            ids, source = start, tuple(ids)
        return self._begin(ids, self._plan(wanted), wanted, observer, self._expected(wanted), source=source)

    def _expected(self, wanted: Options) -> tuple[int, ...]:
        """Returns the predicted answer's tokens, of which no more can be used than the context holds."""
        if wanted.prediction is None:
            return ()
        return tuple(self.text.encode(wanted.prediction, special=False)[: self.target.max_length])

    def _begin(
        self,
        ids: Sequence[int],
        plan: Plan,
        wanted: Options,
        observer: Observer | None,
        expected: tuple[int, ...],
        *,
        opened: Opened | None = None,
        source: Any = None,
    ) -> Generation:
        return Generation(
            self.target,
            self.text,
            ids,
            plan,
            max_tokens=wanted.max_tokens,
            stop=wanted.stop,
            logprobs=wanted.logprobs,
            observer=observer,
            load_seconds=self.load_seconds,
            opened=opened,
            source=source,
            expected=expected,
        )

    def chat(self, system: str | None = None) -> Chat:
        """Returns a conversation that reuses the cache of its earlier turns."""
        return Chat(self, system)

    def _ids(self, prompt: str | Messages, raw: bool, system: str | None) -> list[int]:
        if hasattr(self.target, "start_ids"):
            if not isinstance(prompt, str) or system is not None:
                raise UsageError(
                    f"{self.target.name} is an encoder-decoder: its prompt is one text, not a conversation"
                )
            return self.text.source(prompt)
        if not isinstance(raw, bool):
            raise UsageError(f"raw must be True or False, got {raw!r:.40}")
        if raw:
            if not isinstance(prompt, str) or system is not None:
                raise UsageError("a raw prompt is one text without a system message: leave out raw, or system")
            return self.text.encode(prompt, special=True)
        if not isinstance(prompt, str | Sequence) or isinstance(prompt, bytes):
            raise UsageError(f"a prompt must be a text or a list of messages, got {type(prompt).__name__}")
        messages: list[Mapping[str, str]]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if not messages:
            raise UsageError("a prompt must be a text or at least one message, got none")
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        return self.text.render_chat(messages)

    def forget_prefixes(self) -> None:
        """Drops the caches kept for later prompts, so that the next request prefills all of its own."""
        for target in (self.target, self.draft):
            forget = getattr(target, "forget_prefixes", None)
            if forget is not None:
                forget()

    def close(self) -> None:
        """Writes the store that was asked for and the costs; gives back weights and caches that the engine holds."""
        self.stores.save()
        if self._profiled:
            profiles.keep(self.target, self.costs)
        for target in (self.target, self.draft):
            close = getattr(target, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wanted(options: Mapping[str, Any]) -> Options:
    lists = {name: options[name] for name in ("banned", "allowed", "stop", "stop_ids") if name in options}
    if lists.get("allowed", ()) is None:  # all of them
        del lists["allowed"]
    return Options(**{**options, **{name: _listed(name, given) for name, given in lists.items()}})


def _listed(name: str, given: Any) -> tuple[Any, ...]:
    """Returns the values as a tuple; one stop string is a list of one. Raises UsageError for what is no list."""
    if name == "stop" and isinstance(given, str):
        return (given,)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"{name} must be a list, got {given!r:.40}")
    return tuple(given)
