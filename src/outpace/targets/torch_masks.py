"""Attention masks for drafts, under the names `outpace_sdpa` and `outpace_eager` of transformers' interfaces.

A model asks for its masks by the name in its config, and gives each (causal, sliding window, chunked) as a function
of positions. For one request and a chain the masks are transformers' own. For a tree, or several requests in one
pass, that function is asked about the *positions* of rows and slots (position = depth), and what a row's own path
does not hold is masked: so windows are right whatever the model, and the cache may hold rows in any order.

Under the name `outpace_sdpa` the attention itself is ours, too, where heads share keys and values on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from outpace.types import Draft

OURS = {"sdpa": "outpace_sdpa", "eager": "outpace_eager"}
"""An attention implementation of transformers -> the same one under our masks."""


Token: TypeAlias = int | torch.Tensor
"""A token that is known here, or one that is still on the device."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a pass and the slots of its cache stand.

    rows: [batch, rows] positions. slots: [batch, slots] positions. visible: [batch, 1, rows, slots] whether a slot is
    on the row's own path.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    visible: torch.Tensor


_layout: ContextVar[Layout | None] = ContextVar("layout", default=None)


@contextmanager
def laid_out(layout: Layout | None) -> Iterator[None]:
    """Makes the passes inside use the layout; None is one chain in order."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


def rows_of(drafts: Sequence[Draft], last: Sequence[Token], device: torch.device) -> torch.Tensor:
    """Returns [batch, rows] on the device the ids of a pass: last tokens and drafts, padded to the longest.

    A last token that is there already is one request's, without a draft, and is not waited for.
    """
    if isinstance(last[0], torch.Tensor):
        return last[0].view(1, 1)
    ids = torch.zeros(len(drafts), max(map(len, drafts)) + 1, dtype=torch.long)
    for i, (token, draft) in enumerate(zip(last, drafts, strict=True)):
        ids[i, : len(draft) + 1] = torch.tensor((token, *draft.tokens))
    return ids.to(device)


def depths(draft: Draft) -> list[int]:
    """Returns [N+1] the depth of the last committed token's row (0) and of each node's."""
    found = [0]
    for parent in draft.parents:
        found.append(found[parent + 1] + 1)
    return found


def layout_of(drafts: Sequence[Draft], lengths: Sequence[int], device: torch.device) -> Layout:
    """Returns the layout of a pass: slots are [longest length] committed ones, then the rows of the pass.

    lengths: committed tokens in each cache. Rows are padded to the longest draft; a padding row sees itself alone.
    """
    count, longest = max(map(len, drafts)) + 1, max(lengths)
    rows = torch.zeros(len(drafts), count, dtype=torch.long)
    visible = torch.zeros(len(drafts), 1, count, longest + count, dtype=torch.bool)
    visible[:, :, :, longest:] = torch.eye(count, dtype=torch.bool)
    slots = torch.zeros(len(drafts), longest + count, dtype=torch.long)
    slots[:, :longest] = torch.arange(longest)
    for i, (draft, length) in enumerate(zip(drafts, lengths, strict=True)):
        rows[i, : len(draft) + 1] = torch.tensor(depths(draft)) + length
        visible[i, 0, : len(draft) + 1, :length] = True
        own = visible[i, 0, :, longest:]
        for node, parent in enumerate(draft.parents):
            own[node + 1] |= own[parent + 1]
    slots[:, longest:] = rows
    return Layout(rows.to(device), slots.to(device), visible.to(device))


def _ours(mask_function: Any, layout: Layout) -> torch.Tensor:
    """Returns [batch, 1, rows, slots] whether a row attends to a slot."""
    device = layout.rows.device
    batch = torch.arange(len(layout.rows), device=device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
    allowed = mask_function(batch, head, layout.rows[:, None, :, None], layout.slots[:, None, None, :])
    masked: torch.Tensor = layout.visible & allowed
    return masked


def _sdpa_mask(*args: Any, **how: Any) -> Any:
    layout = _layout.get()
    return sdpa_mask(*args, **how) if layout is None else _ours(how["mask_function"], layout)


def _eager_mask(*args: Any, **how: Any) -> Any:
    layout = _layout.get()
    if layout is None:
        return eager_mask(*args, **how)
    dtype = how["dtype"]
    allowed = _ours(how["mask_function"], layout)
    return torch.where(allowed, torch.zeros((), dtype=dtype, device=allowed.device), torch.finfo(dtype).min)


def sdpa_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **how: Any
) -> tuple[torch.Tensor, None]:
    """Returns [batch, rows, heads, size] as transformers' own does, but on the CPU without copies of keys and values.

    Where heads share keys and values, a masked pass would repeat those for every head, and in half precision a single
    row is slow head by head: there the heads that share go as rows.
    """
    groups, rows = getattr(module, "num_key_value_groups", 1), query.shape[2]
    alike = mask is None or mask.shape[1] == 1
    as_rows = rows == 1 and query.dtype != torch.float32
    ours = query.device.type == "cpu" and groups > 1 and alike and (as_rows or mask is not None)
    if not ours or how.get("position_bias") is not None or how.get("softcap") is not None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **how)
        return found
    packed = query.reshape(query.shape[0], key.shape[1], groups, query.shape[3]) if as_rows else query
    mixed = scaled_dot_product_attention(
        packed, key, value, mask, how.get("dropout", 0.0), scale=how.get("scaling"), enable_gqa=not as_rows
    )
    return mixed.reshape(*query.shape[:3], value.shape[3]).transpose(1, 2).contiguous(), None


def _eager_attention(module: torch.nn.Module, *args: Any, **how: Any) -> Any:
    """Returns what the model's own eager attention does, which every modelling file defines for itself."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **how)


@cache
def register() -> None:
    """Makes both names known to transformers; changes nothing for models that do not ask for them."""
    AttentionInterface.register(OURS["sdpa"], sdpa_attention)
    AttentionMaskInterface.register(OURS["sdpa"], _sdpa_mask)
    AttentionInterface.register(OURS["eager"], _eager_attention)
    AttentionMaskInterface.register(OURS["eager"], _eager_mask)
