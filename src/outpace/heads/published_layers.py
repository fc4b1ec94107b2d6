"""What published heads compute, beside the target that they were made for: on its device, in its type.

EAGLE's row i has the target's features of token i and the embedding of token i + 1, at position i, and gives features
for the token after (Li et al. 2024). EAGLE-3 fuses three layers' features and norms both halves before attention (Li
et al. 2025). A Medusa head guesses its own position from the last features alone (Cai et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as nn
from numpy.typing import NDArray
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from outpace.errors import BadModelFile, UsageError, VocabularyMismatch
from outpace.heads.published import EAGLE3, MEDUSA
from outpace.heads.published_file import PublishedHead
from outpace.native.metadata import brief
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_models import final_norm, in_numpy
from outpace.types import Target

Rows = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class RunningHead:
    """A published head that runs; what `load` gives as the draft of a model. deepest: tokens that it can guess."""

    name: str
    drafter: str
    vocab_size: int
    taps: tuple[int, ...]
    weight_bytes: int
    deepest: int | None
    layers: Eagle | Medusa

    def open(self) -> _EaglePlace | _MedusaPlace:
        """Returns the place of a new request."""
        return self.layers.open()


def run_on(head: PublishedHead, target: Target) -> RunningHead:
    """Returns the head beside a target. Raises UsageError for one that is not on the torch engine, and
    VocabularyMismatch for one that the head was not made for."""
    if not isinstance(target, TorchTarget) or getattr(target, "start_ids", None) is not None:
        raise UsageError(
            f"published heads run beside a causal model of engine 'torch', {target.name} is none: "
            "use --engine torch, or a head of `outpace train`"
        )
    layers = Medusa(head, target) if head.kind == MEDUSA else Eagle(head, target)
    size = sum(tensor.nbytes for tensor in layers.weights.values())
    return RunningHead(head.folder.name, "published", target.vocab_size, layers.taps, size, layers.deepest, layers)


class _Layers:
    """Weights on the target's device, and what both kinds need of the target."""

    def __init__(self, head: PublishedHead, target: TorchTarget) -> None:
        self.target = target
        model = target.model
        self.device, self.dtype = target.device, model.dtype
        self.weights = {name: tensor.to(self.device, self.dtype) for name, tensor in head.tensors.items()
                        if tensor.is_floating_point() and name != "embed_tokens.weight"}  # fmt: skip
        self._norm = final_norm(model)

    def states(self, hidden: Rows) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(hidden)).to(self.device, self.dtype)

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return nn.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def last_features(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns [n, H] the last layer's states behind the target's own final norm."""
        normed: torch.Tensor = self._norm(hidden[:, -1])
        return normed

    def _fits(self, head: PublishedHead, what: str, have: int, want: int) -> None:
        if have != want:
            raise VocabularyMismatch(
                f"{head.folder.name} was made for a target with {what} of {have}, {self.target.name} has {want}"
            )


class Medusa(_Layers):
    """Residual blocks and an output matrix for each position."""

    def __init__(self, head: PublishedHead, target: TorchTarget) -> None:
        super().__init__(head, target)
        self.taps = (target.hidden_layers - 1,)
        self.deepest: int | None = int(head.config["medusa_num_heads"])
        self.blocks = int(head.config.get("medusa_num_layers", 1))
        self._fits(head, "hidden states", self.weights["0.0.linear.weight"].shape[0], target.hidden_size)
        self._fits(head, "a vocabulary", self.weights[f"0.{self.blocks}.weight"].shape[0], target.vocab_size)

    def open(self) -> _MedusaPlace:
        return _MedusaPlace(self)


class _MedusaPlace:
    """The last committed features."""

    def __init__(self, head: Medusa) -> None:
        self._head = head
        self._last: torch.Tensor | None = None

    def begin(self, hidden: Rows, tokens: Sequence[int]) -> None:
        """Takes in committed features [n, taps, H] and the token after each."""
        if len(hidden):
            with torch.inference_mode():
                self._last = self._head.last_features(self._head.states(hidden[-1:]))

    def next(self, path: Sequence[int]) -> Rows:
        """Returns [vocab_size] the logits of the position after `path`."""
        head, x = self._head, self._last
        assert x is not None  # a draft begins after two tokens, so there are features
        with torch.inference_mode():
            for block in range(head.blocks):
                x = x + nn.silu(head.linear(f"{len(path)}.{block}.linear", x))
            row: Rows = in_numpy(head.linear(f"{len(path)}.{head.blocks}", x))[0]
            return row


class Eagle(_Layers):
    """One layer over features and embeddings, of EAGLE-1, -2 or -3."""

    def __init__(self, head: PublishedHead, target: TorchTarget) -> None:
        super().__init__(head, target)
        self.deepest: int | None = None
        self.third = head.kind == EAGLE3
        self.norm_first = head.norm_first
        self.config, self.rotary = _llama(head)
        self.rotary.to(self.device)
        self.hidden = int(self.config.hidden_size)
        self.head_dim = int(head.config.get("head_dim", self.hidden // self.config.num_attention_heads))
        count = target.hidden_layers
        self.chosen = head.taps or (1, count // 2 - 1, count - 4)
        if not self.third:
            self.chosen = (count - 1,)
        if not all(0 <= layer < count for layer in self.chosen):
            raise VocabularyMismatch(f"{head.folder.name} reads layers {self.chosen}, {target.name} has {count}")
        self.taps = tuple(sorted(set(self.chosen)))
        fused = self.weights["fc.weight"].shape[1] - (0 if self.third else self.hidden)
        self._fits(head, "hidden states", fused // len(self.chosen), target.hidden_size)
        own = head.tensors.get("embed_tokens.weight")
        self.embedding = target.model.get_input_embeddings() if own is None else torch.nn.Embedding.from_pretrained(
            own.to(self.device, self.dtype)
        )  # fmt: skip
        width, rows = int(self.embedding.weight.shape[1]), int(self.embedding.weight.shape[0])
        self._fits(head, "embeddings", self.hidden, width)
        self._fits(head, "a vocabulary", rows, target.vocab_size)
        self.ids = self._ids(head) if self.third else None

    def _ids(self, head: PublishedHead) -> NDArray[np.int64]:
        """Returns [draft vocabulary] the target's token of each row; published as offsets from the row's number."""
        rows = self.weights["lm_head.weight"].shape[0]
        offsets = head.tensors.get("d2t")
        ids = np.arange(rows) + (0 if offsets is None else offsets.long().numpy())
        if ids.min() < 0 or ids.max() >= self.target.vocab_size:
            raise VocabularyMismatch(
                f"{head.folder.name} proposes tokens {ids.min()} to {ids.max()}, {self.target.name} has "
                f"{self.target.vocab_size}"
            )
        return np.asarray(ids, np.int64)

    def open(self) -> _EaglePlace:
        return _EaglePlace(self)

    def features(self, hidden: Rows) -> torch.Tensor:
        """Returns [n, H] what enters a committed row beside its token's embedding."""
        states = self.states(hidden)
        if not self.third:
            return self.last_features(states)
        return self.linear("fc", states[:, [self.taps.index(layer) for layer in self.chosen]].flatten(1))

    def forward(self, features: torch.Tensor, tokens: Sequence[int], place: _EaglePlace) -> torch.Tensor:
        """Returns [n, H] the features that the rows give; their keys and values join the place's."""
        embedded = self.embedding(torch.tensor(list(tokens), device=self.device)).to(self.dtype)
        if self.third:
            normed = self.norm("layer.hidden_norm", features)
            residual = normed if self.norm_first else features
            x = torch.cat((self.norm("layer.input_layernorm", embedded), normed), dim=-1)
        else:
            x = residual = self.linear("fc", torch.cat((embedded, features), dim=-1))
        y = residual + self.linear("layer.self_attn.o_proj", self._attend(x, place))
        z = self.norm("layer.post_attention_layernorm", y)
        gate = nn.silu(self.linear("layer.mlp.gate_proj", z))
        return y + self.linear("layer.mlp.down_proj", gate * self.linear("layer.mlp.up_proj", z))

    def _attend(self, x: torch.Tensor, place: _EaglePlace) -> torch.Tensor:
        count, start = len(x), place.length
        query, keys, values = (
            self.linear(f"layer.self_attn.{name}_proj", x).view(1, count, -1, self.head_dim).transpose(1, 2)
            for name in "qkv"
        )
        positions = torch.arange(start, start + count, device=self.device)[None]
        query, keys = apply_rotary_pos_emb(query, keys, *self.rotary(x[None], positions))
        keys, values = place.put(keys, values)
        seen = torch.ones(count, start + count, dtype=torch.bool, device=self.device).tril(start)
        mixed = nn.scaled_dot_product_attention(query, keys, values, attn_mask=seen, enable_gqa=True)
        return mixed.transpose(1, 2).reshape(count, -1)

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return nn.rms_norm(x, (x.shape[-1],), self.weights[f"{name}.weight"], self.config.rms_norm_eps)

    def logits(self, features: torch.Tensor) -> Rows:
        """Returns [vocab_size] the logits of one row's features; -inf for what the head cannot propose."""
        if self.ids is None:
            row: Rows = in_numpy(self.target.model.get_output_embeddings()(features))[0]
            return row
        row = in_numpy(self.linear("lm_head", self.norm("norm", features)))[0]
        full = np.full(self.target.vocab_size, -np.inf, np.float32)
        full[self.ids] = row
        return full


def _llama(head: PublishedHead) -> tuple[LlamaConfig, LlamaRotaryEmbedding]:
    """Returns the config and the rotations of a Llama's layer. Raises BadModelFile for rotations that are none."""
    name = "rope_parameters" if head.config.get("rope_parameters") else "rope_scaling"
    stated = brief(head.config.get(name))
    try:
        config = LlamaConfig(**head.config)  # which writes into what it is given
        rotary = LlamaRotaryEmbedding(config)
    except Exception:  # the library raises what it stumbles on
        rotary = None
    if rotary is None or not rotary.inv_freq.isfinite().all():
        raise BadModelFile(f"{head.folder}: {name} must be one that transformers has for a Llama, got {stated}")
    return config, rotary


class _EaglePlace:
    """Keys and values of committed rows, then of guessed ones."""

    def __init__(self, head: Eagle) -> None:
        self._head = head
        self.length = 0
        self._committed = 0
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        self._last: torch.Tensor | None = None  # the features of the last committed row
        self._tip: torch.Tensor | None = None

    def put(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends [1, heads, n, size]; returns all there are."""
        if self._keys is not None and self._values is not None:
            keys = torch.cat((self._keys[:, :, : self.length], keys), dim=2)
            values = torch.cat((self._values[:, :, : self.length], values), dim=2)
        self._keys, self._values, self.length = keys, values, keys.shape[2]
        return keys, values

    def begin(self, hidden: Rows, tokens: Sequence[int]) -> None:
        """Takes in committed features [n, taps, H] and the token after each; forgets guesses."""
        self.length = self._committed
        if len(hidden):
            with torch.inference_mode():
                self._last = self._head.forward(self._head.features(hidden), tokens, self)[-1:]
            self._committed = self.length
        self._tip = self._last

    def next(self, path: Sequence[int]) -> Rows:
        """Returns [vocab_size] the logits after the last committed token and the guessed `path`."""
        assert self._tip is not None  # a draft begins after two tokens, so there is a row
        with torch.inference_mode():
            if path:
                self._tip = self._head.forward(self._tip, path[-1:], self)
            return self._head.logits(self._tip)
