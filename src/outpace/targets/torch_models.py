"""What there is to know about a model of `transformers` before it is driven, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.errors import TooLarge, Unsupported, UsageError
from outpace.targets.torch_masks import OURS, register

DEFAULT_CONTEXT = 8192
"""Positions of a context when nobody asks for another number and the model was trained for at least as many."""

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers whose whole state is keys and values, which can be cut anywhere."""

_NORMS = ("norm", "ln_f", "final_layernorm", "final_layer_norm", "final_norm")
_LAYERS = ("layers", "h", "block", "blocks")

Call = Callable[[torch.Tensor, torch.Tensor, Any, bool], torch.Tensor]


def check_rewindable(model: Any) -> None:
    """Raises Unsupported, with the reason, for a model whose state cannot be rewound after a rejected draft."""
    config = model.config.get_text_config(decoder=True)
    kinds = {str(kind) for kind in getattr(config, "layer_types", None) or ()}
    if getattr(model, "_is_stateful", False) or kinds - _ATTENTION:
        found = (
            f"layers of the kind {', '.join(sorted(kinds - _ATTENTION))}"
            if kinds - _ATTENTION
            else "recurrent layers"
        )
        raise Unsupported(
            f"{type(model).__name__} has {found}: their state cannot be rewound after a rejected draft, so the text "
            "would change; a model with attention in every layer works"
        )


def chosen_context(config: Any, context: int | None) -> int:
    """Returns the positions of a context. Raises UsageError outside [1, what the model was made for]."""
    own = _own_length(config)
    if context is None:
        return min(own, DEFAULT_CONTEXT)
    if not 1 <= context <= own:
        raise UsageError(f"context must be in [1, {own}], what the model was made for, got {context}")
    return context


def own_length(model: Any) -> int:
    """Returns the positions that the model was made for."""
    return _own_length(model.config.get_text_config(decoder=True))


def _own_length(config: Any) -> int:
    return next((int(n) for name in _LENGTHS if (n := getattr(config, name, None))), DEFAULT_CONTEXT)


_LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions", "n_ctx", "seq_length")


def eos_ids(model: Any) -> frozenset[int]:
    """Returns the ids that end a text, of the generation config and of the model's own."""
    found: set[int] = set()
    for config in (getattr(model, "generation_config", None), model.config.get_text_config(decoder=True)):
        ids = getattr(config, "eos_token_id", None)
        found |= set() if ids is None else {ids} if isinstance(ids, int) else set(map(int, ids))
    return frozenset(found)


def weight_bytes(model: Any) -> int:
    """Returns the bytes of weights that one pass reads: all but an embedding that is only looked up."""
    size = sum(weight.nbytes for weight in model.parameters())
    if model.config.is_encoder_decoder:  # the encoder runs once
        encoder = model.get_encoder()
        shared = {id(weight) for weight in model.get_decoder().parameters()}
        size -= sum(weight.nbytes for weight in encoder.parameters() if id(weight) not in shared)
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    looked_up = table is not None and head is not None and table.weight is not head.weight
    return int(size - (table.weight.nbytes if looked_up else 0))


def kernel(model: Any) -> str:
    """Returns what computes its passes: device, type, and whether weights are packed (torch_packing.py)."""
    packed = any(weight.is_mkldnn for weight in model.parameters())
    return f"{model.device.type} {str(model.dtype).removeprefix('torch.')}{' packed' if packed else ''}"


def caller(model: Any) -> Call:
    """Returns a function (ids, positions, cache, logits wanted) -> logits [batch, rows, vocabulary].

    Where no logits are wanted, only those of the last row are made.
    """
    known = inspect.signature(model.forward).parameters
    cache_name = "cache" if "cache" in known else "past_key_values"
    takes_positions = "position_ids" in known
    cuts_logits = "logits_to_keep" in known

    def call(ids: torch.Tensor, positions: torch.Tensor, cache: Any, logits: bool) -> torch.Tensor:
        how: dict[str, Any] = {"input_ids": ids, cache_name: cache, "use_cache": True}
        if takes_positions:
            how["position_ids"] = positions
        if cuts_logits and not logits:
            how["logits_to_keep"] = 1
        found: torch.Tensor = model(**how).logits
        return found

    return call


def use_our_masks(model: Any) -> bool:
    """Makes the model ask for our masks; returns whether it does, without which trees cannot be scored.

    Raises Unsupported for attention kernels that take no masks.
    """
    register()
    own = model.config._attn_implementation
    if own in OURS.values():
        return True
    if own not in OURS:
        raise Unsupported(
            f"attention {own!r} cannot be given the masks of drafts: load the model with attn_implementation='sdpa'"
        )
    if not model._can_set_attn_implementation():  # an older file, whose masks are its own
        return False
    model.set_attn_implementation(OURS[own])
    return True


def decoder_layers(model: Any) -> Sequence[torch.nn.Module]:
    """Returns the decoder's layers. Raises Unsupported where they have none of the usual names."""
    decoder = model.get_decoder()
    found = next((getattr(decoder, name) for name in _LAYERS if hasattr(decoder, name)), None)
    if not isinstance(found, torch.nn.ModuleList):
        raise Unsupported(f"{type(model).__name__}: its layers have none of the names {', '.join(_LAYERS)}")
    layers: Sequence[torch.nn.Module] = found
    return layers


def final_norm(model: Any) -> torch.nn.Module:
    """Returns the norm between the last layer and the head. Raises Unsupported where it has no usual name."""
    decoder = model.get_decoder()
    for name in _NORMS:
        norm = getattr(decoder, name, None)
        if isinstance(norm, torch.nn.Module):
            return norm
    raise Unsupported(f"{type(model).__name__}: its final norm has none of the names {', '.join(_NORMS)}")


class Tapped:
    """Collects the outputs of layers while it is open."""

    def __init__(self, model: Any, taps: tuple[int, ...]) -> None:
        self._layers = {layer: decoder_layers(model)[layer] for layer in taps}
        self._found: dict[int, torch.Tensor] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Tapped:
        for layer, module in self._layers.items():
            self._handles.append(module.register_forward_hook(self._hook(layer)))
        return self

    def _hook(self, layer: int) -> Callable[[Any, Any, Any], None]:
        def keep(module: Any, inputs: Any, output: Any) -> None:
            self._found[layer] = output[0] if isinstance(output, tuple) else output

        return keep

    def states(self) -> torch.Tensor:
        """Returns [batch, rows, taps, H]."""
        return torch.stack([self._found[layer] for layer in self._layers], dim=2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()


@contextmanager
def explained(name: str, model: Any) -> Iterator[None]:
    """Turns an allocation that failed into TooLarge, one sentence with the sizes."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        raise TooLarge(out_of_memory(name, model)) from None


def _is_out_of_memory(error: RuntimeError) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in text or "out of memory" in text


def out_of_memory(name: str, model: Any) -> str:
    """Returns the sentence that says what the weights take and what the device has; model None: not yet loaded."""
    if model is None:
        return f"out of memory: {name} does not fit on the device; a smaller type or model may"
    weights = sum(weight.nbytes for weight in model.parameters())
    device = model.device
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        room = f"{free / 1e6:,.0f} MB of {total / 1e6:,.0f} MB are free on {device}"
    else:
        room = f"the device is {device}"
    return (
        f"out of memory: {name} has {weights / 1e6:,.0f} MB of weights in "
        f"{str(model.dtype).removeprefix('torch.')}, {room}; "
        "a shorter context, a smaller type or fewer requests may fit"
    )


def in_numpy(values: torch.Tensor) -> NDArray[np.float32]:
    """Returns the values in f32 on the CPU: one transfer, which waits for the device."""
    array: NDArray[np.float32] = values.float().cpu().numpy()
    return array


def on_host(*values: torch.Tensor) -> list[NDArray[np.float32]]:
    """Returns each of the values in f32 on the CPU: one transfer for all of them, which waits for the device."""
    if len(values) < 2:
        return [in_numpy(one) for one in values]
    whole = in_numpy(torch.cat([one.float().flatten() for one in values]))
    ends = np.cumsum([one.numel() for one in values])
    return [part.reshape(one.shape) for part, one in zip(np.split(whole, ends[:-1]), values, strict=True)]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Returns how many first tokens are equal."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
