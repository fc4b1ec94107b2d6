"""Any causal model of `transformers` as a target, on CPU or CUDA, in the precision that it was loaded in.

The keys and values are ours (torch_cache.py), so are the masks of trees and batches (torch_masks.py); the rest is the
model's own forward, on CUDA recorded and played again where it can be (torch_static.py). A pass ends with one
transfer to the CPU, the only synchronisation of a step: laws and rules then run as on the native engine. Rounding
depends on how many rows share a matrix product, so `bit_exact` is False: in float32 texts are equal but for exact
ties, in half precision the law is kept, and texts of different drafters may part where two tokens are about equally
likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.errors import ContextOverflow, Unsupported, UsageError
from outpace.targets.torch_cache import KeyValues, PassCache
from outpace.targets.torch_masks import Token, laid_out, layout_of, rows_of
from outpace.targets.torch_models import (
    Tapped,
    caller,
    check_rewindable,
    chosen_context,
    common_length,
    eos_ids,
    explained,
    final_norm,
    in_numpy,
    kernel,
    on_host,
    use_our_masks,
    weight_bytes,
)
from outpace.targets.torch_proof import check_static, prove
from outpace.targets.torch_static import Outputs, Recorder, StaticPasses, Unrecordable, recorder_of
from outpace.types import EMPTY, Context, Draft, Prompt, Scores, TargetSession, Verdict

PREFILL_SLICE = 1024
"""Tokens that are prefilled in one pass: more would only make its masks larger."""

KEPT_PREFIXES = 4
"""Closed requests whose keys and values may serve later prompts, at most one full context in all."""

Hidden = NDArray[np.float32]


class TorchSession:
    """One request; a TargetSession. `tokens` are those in the cache."""

    def __init__(
        self, target: TorchTarget, held: KeyValues, tokens: Sequence[int], last: int, taps: tuple[int, ...]
    ) -> None:
        self.target = target
        self.held = held
        self.tokens = list(tokens)
        self.last = last
        self.taps = taps
        self.scored = 0
        """Rows of the last pass, which a commit may keep."""
        self.closed = False

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self.held.length

    def commit(self, draft: Draft, verdict: Verdict) -> None:
        """Keeps the last token and the accepted path in the cache, forgets every other node."""
        if len(draft) + 1 != self.scored:
            raise UsageError(
                f"a commit must follow the scores of its draft: {len(draft) + 1} rows, {self.scored} scored"
            )
        with torch.inference_mode():
            self.held.keep([0, *(node + 1 for node in verdict.path)])
        self.tokens += (self.last, *(draft.tokens[node] for node in verdict.path))
        self.last = verdict.next_token
        self.scored = 0

    def rewind(self, length: int, last: int) -> None:
        """Forgets what follows the first `length` cached tokens; `last` becomes the last committed token."""
        if not 0 <= length <= self.length:
            raise UsageError(f"length must be in [0, {self.length}], got {length}")
        self.held.length = length
        del self.tokens[length:]
        self.last = last
        self.scored = 0

    def close(self) -> None:
        """Gives the cache back; its tokens stay with the target for later prompts while there is room."""
        if not self.closed:
            self.closed = True
            self.target.keep(self)


class TorchTarget:
    """A causal model of transformers; a Target. `torch_loading` makes one from a folder.

    model: in evaluation mode, on its device. context: positions that a session may hold, None for the model's own.
    proved: look at its first passes (torch_proof.py); one whose text depends on nothing could not pass.
    record: what gives the recorder of its passes, None for none.
    Raises Unsupported for a model whose state cannot be rewound, or that fails the check on its own first passes.
    """

    engine = "torch"
    bit_exact = False

    def __init__(
        self,
        model: Any,
        name: str,
        *,
        context: int | None = None,
        proved: bool = True,
        record: Callable[[Any], Recorder | None] = recorder_of,
    ) -> None:
        check_rewindable(model)
        self.model = model.eval()
        self.name = name
        self.device = model.device
        self.threads = torch.get_num_threads()
        config = model.config.get_text_config(decoder=True)
        self.max_length = chosen_context(config, context)
        self.hidden_layers = int(config.num_hidden_layers)
        self.hidden_size = int(config.hidden_size)
        self.weight_bytes = weight_bytes(model)
        self.eos_ids = eos_ids(model)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self._kept: list[TorchSession] = []
        self._static: StaticPasses | None = None
        self.passes = "eager passes"
        """How they are launched, and why so where more was tried."""
        self.joins_requests = self.scores_trees = self._prepare()
        shown = prove(self) if proved else None
        self._record_passes(record)
        if shown is not None and self._static is not None:
            check_static(self, shown)

    def _prepare(self) -> bool:
        """Makes the model ready to be called; returns whether it asks for our masks."""
        if self.model.config.is_encoder_decoder:
            raise Unsupported(f"{type(self.model).__name__} is an encoder-decoder: it is a target for `TorchSeq2Seq`")
        self._call = caller(self.model)
        return use_our_masks(self.model)

    @property
    def kernel(self) -> str:
        """What computes its passes, in a few words: what they cost depends on it."""
        return kernel(self.model) + (" recorded" if self._static is not None else "")

    @property
    def runs_on(self) -> str:
        """What the engine chose, to be printed: device, type, and how passes are launched."""
        return f"{kernel(self.model)}, {self.passes}"

    def _record_passes(self, record: Callable[[Any], Recorder | None]) -> None:
        """Has passes of one request recorded over static buffers, where there is a recorder for the model."""
        try:
            recorder = record(self.model)
            if recorder is None:
                return
            if not self.scores_trees:
                raise Unrecordable("it takes no masks of ours")
        except Unrecordable as reason:
            self.unrecord(str(reason))
        else:
            self._static = StaticPasses(self.model, self._call, recorder, self.max_length)
            self.passes = f"{recorder.name} over a static cache"

    def unrecord(self, reason: str) -> None:
        """Makes passes eager ones over growing buffers from here on; `passes` says why."""
        if self._static is not None:
            self._static.forget()
        self._static = None
        self.passes = f"eager passes: {reason}"

    def sample(self, ids: Sequence[int]) -> Prompt:
        """Returns a prompt of these ids, to look at the model with."""
        return Prompt(tuple(ids))

    def open(self, prompt: Prompt, taps: tuple[int, ...] = ()) -> tuple[TorchSession, Context]:
        """Returns a session whose cache holds all of the prompt but its last token, and the hidden states of `taps`.

        Raises ContextOverflow when the prompt is empty or does not fit, UsageError for ids or layers that the model
        does not have, TooLarge when memory runs out.
        """
        ids = prompt.ids
        self._check(ids, taps)
        held = self._begin(prompt, taps)
        hidden: list[Hidden] = []
        for start in range(held.length, len(ids) - 1, PREFILL_SLICE):
            rows = ids[start : min(start + PREFILL_SLICE, len(ids) - 1)]
            draft = Draft.chain(rows[1:])
            _, found = self._forward([held], [draft], [rows[0]], taps, logits=False)
            held.keep(range(len(rows)))
            if found is not None:
                hidden.append(found[0])
        states = np.concatenate(hidden) if hidden else self._no_hidden(taps)
        context = Context(hidden=states, encoded=self._encoded(held))
        return TorchSession(self, held, ids[:-1], ids[-1], taps), context

    def score_many(self, work: Sequence[tuple[TargetSession, Draft]]) -> list[Scores]:
        """Returns the scores of each draft: one forward over [last token] + nodes of every request.

        Raises UsageError for a token that the model does not have, and when a draft does not fit in the context.
        """
        own = cast("Sequence[tuple[TorchSession, Draft]]", work)
        for session, draft in own:
            self._check_draft(session, draft)
        if len(own) > 1 and not self.joins_requests:
            return [self.score_many([one])[0] for one in own]
        taps = tuple(sorted({layer for session, _ in own for layer in session.taps}))
        logits, states = self._forward(
            [session.held for session, _ in own],
            [draft for _, draft in own],
            [session.last for session, _ in own],
            taps,
        )
        scores = []
        for i, (session, draft) in enumerate(own):
            session.scored = len(draft) + 1
            hidden = None
            if states is not None and session.taps:
                hidden = states[i][:, [taps.index(layer) for layer in session.taps]]
            scores.append(Scores(logits[i], hidden))
        return scores

    def follow(self, session: TargetSession, draft: Draft, count: int, below: int) -> list[int]:
        """Returns the `count` tokens with the largest logits after a chain, each after the one before it.

        They stay on the device until all are there. The cache then holds all but the last. below: ids beyond are not
        taken. Raises as `score_many` does.
        """
        own = cast(TorchSession, session)
        self._check_draft(own, draft, count - 1)
        seen, rows = (own.last, *draft.tokens), len(draft) + 1
        token: Token = own.last
        found: list[torch.Tensor] = []
        with torch.inference_mode(), explained(self.name, self.model):
            for _ in range(count):
                logits, _ = self._pass([own.held], [draft], [token], (), True)
                token = logits[0, -1, :below].argmax()
                found.append(token)
                own.held.keep(range(rows))
                draft, rows = EMPTY, 1
            tokens: list[int] = torch.stack(found).tolist()  # the one synchronisation
        own.tokens += (*seen, *tokens[:-1])
        own.last, own.scored = tokens[-1], 0
        return tokens

    def embed(self, ids: Sequence[int]) -> Hidden:
        """Returns the embeddings [N, H] f32."""
        with torch.inference_mode():
            return in_numpy(self.model.get_input_embeddings()(torch.tensor(list(ids), device=self.device)))

    def head(self, hidden: Hidden) -> Hidden:
        """Returns the logits [N, V] of hidden states [N, H] after the last layer: the final norm, then the head."""
        norm = final_norm(self.model)
        with torch.inference_mode():
            states = torch.from_numpy(np.ascontiguousarray(hidden)).to(self.device, self.model.dtype)
            return in_numpy(self.model.get_output_embeddings()(norm(states)))

    def keep(self, session: TorchSession) -> None:
        """Takes over the cache of a closed request."""
        self._kept.append(session)
        while len(self._kept) > KEPT_PREFIXES or sum(len(kept.tokens) for kept in self._kept) > self.max_length:
            self._drop(self._kept[0])

    def forget(self) -> None:
        """Gives back the caches of closed requests."""
        while self._kept:
            self._drop(self._kept[0])

    def _drop(self, kept: TorchSession) -> None:
        self._kept.remove(kept)
        kept.held = KeyValues()  # whoever still has the session does not hold the memory

    def _begin(self, prompt: Prompt, taps: tuple[int, ...]) -> KeyValues:
        """Returns keys and values that may hold a first part of the prompt already."""
        return self._empty() if taps else self._reused(prompt.ids)

    def _empty(self) -> KeyValues:
        """Returns new keys and values, in the static buffers unless a request that is open has them."""
        if self._static is None:
            return KeyValues()
        for kept in [kept for kept in self._kept if self._static.owns(kept.held)]:
            self._drop(kept)  # recorded passes are worth more than a prefix
        return KeyValues() if self._static.lent else self._static.lend()

    def _encoded(self, held: KeyValues) -> Any:
        """Returns what an encoder made of the source; there is none here."""
        return None

    def _reused(self, ids: Sequence[int]) -> KeyValues:
        """Returns the cache of the closed request that shares the most first tokens with `ids`, rewound to those."""
        best, length = None, 0
        for session in self._kept:
            common = common_length(session.tokens, ids[:-1])
            if common > length:
                best, length = session, common
        if best is None:
            return self._empty()
        held = best.held
        self._drop(best)
        held.length = length
        return held

    def _forward(
        self,
        held: Sequence[KeyValues],
        drafts: Sequence[Draft],
        last: Sequence[int],
        taps: tuple[int, ...] = (),
        *,
        logits: bool = True,
    ) -> tuple[list[Hidden], list[Hidden] | None]:
        """Returns for each request [N+1, V] logits, and [N+1, taps, H] hidden states where there are taps."""
        counts = [len(draft) + 1 for draft in drafts]
        with torch.inference_mode(), explained(self.name, self.model):
            out, tapped = self._pass(held, drafts, last, taps, logits)
            found = on_host(*([out] if logits else []), *([tapped] if taps else []))  # the one synchronisation
        each = [[rows[i, :count] for i, count in enumerate(counts)] for rows in found]
        return each[0] if logits else [], each[-1] if taps else None

    def _pass(
        self,
        held: Sequence[KeyValues],
        drafts: Sequence[Draft],
        last: Sequence[Token],
        taps: tuple[int, ...],
        logits: bool,
    ) -> Outputs:
        """Returns logits [batch, rows, V], perhaps of the last row alone where none are wanted, and tapped states."""
        found = self._recorded(held, drafts, last, taps) if logits else None
        return found or self._eager(held, drafts, last, taps, logits)

    def _recorded(
        self, held: Sequence[KeyValues], drafts: Sequence[Draft], last: Sequence[Token], taps: tuple[int, ...]
    ) -> Outputs | None:
        """Returns what a recorded pass gives; None where this one cannot be one."""
        if self._static is None or len(held) > 1 or not self._static.takes(held[0], len(drafts[0]) + 1):
            return None
        try:
            return self._static.run(held[0], drafts[0], last[0], taps)
        except Unrecordable as reason:
            self.unrecord(str(reason))
            return None

    def _eager(
        self,
        held: Sequence[KeyValues],
        drafts: Sequence[Draft],
        last: Sequence[Token],
        taps: tuple[int, ...],
        logits: bool,
    ) -> Outputs:
        counts = [len(draft) + 1 for draft in drafts]
        cache = PassCache(held, counts)
        lengths = [one.length for one in held]
        in_order = len(held) == 1 and drafts[0].is_chain
        layout = None if in_order else layout_of(drafts, lengths, self.device)
        with laid_out(layout), Tapped(self.model, taps) as tapped:
            places = torch.arange(counts[0], device=self.device)[None] + lengths[0] if layout is None else layout.rows
            out = self._call(rows_of(drafts, last, self.device), places, cache, logits)
            if cache.seen == 0:
                raise Unsupported(
                    f"{self.name}: the model does not use the cache that it is given, so nothing rewinds it"
                )
            return out, tapped.states() if taps else None

    def _check_draft(self, session: TorchSession, draft: Draft, more: int = 0) -> None:
        """Raises UsageError for a draft that the model cannot score; more: tokens that will follow it."""
        if draft.tokens and not 0 <= min(draft.tokens) <= max(draft.tokens) < self.vocab_size:
            raise UsageError(f"token ids must be in [0, {self.vocab_size}), got {draft.tokens}")
        if session.length + 1 + draft.depth + more > self.max_length:
            raise UsageError(
                f"a draft of {draft.depth + more} tokens does not fit: {session.length + 1} of {self.max_length} "
                "positions are taken"
            )

    def _check(self, ids: Sequence[int], taps: tuple[int, ...]) -> None:
        if not ids:
            raise ContextOverflow("the prompt is empty, a request needs at least one token")
        if len(ids) > self.max_length:
            raise ContextOverflow(
                f"the prompt has {len(ids)} tokens, the context holds {self.max_length}: shorten the prompt or load "
                "the model with a larger context"
            )
        low, high = min(ids), max(ids)
        if low < 0 or high >= self.vocab_size:
            raise UsageError(f"token ids must be in [0, {self.vocab_size}), got {low if low < 0 else high}")
        for layer in taps:
            if not 0 <= layer < self.hidden_layers:
                raise UsageError(f"taps are layers in [0, {self.hidden_layers}), got {layer}")

    def _no_hidden(self, taps: tuple[int, ...]) -> Hidden | None:
        return np.empty((0, len(taps), self.hidden_size), np.float32) if taps else None
