"""Keys and values of one request, cut at absolute places, and the cache that a pass over several of them sees.

Nothing is dropped when a sliding window moves on: the masks limit what a row sees, so a draft may be forgotten
wherever it ended, also across the window's edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from transformers import Cache

LEAST_CAPACITY = 128
"""Positions that a new buffer has room for; it doubles when it is full."""


Layers: TypeAlias = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""A layer's number -> (keys, values), each [1, heads, capacity, head size]; layers that share have no own."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class KeyValues:
    """One request's keys and values. length: committed positions; what lies beyond is a draft's, or nobody's.

    least: positions that new buffers have room for.
    """

    length: int = 0
    layers: Layers = field(default_factory=dict)
    least: int = LEAST_CAPACITY

    def put(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes [1, heads, n, size] behind the committed ones; returns the views [1, heads, length + n, size]."""
        end = self.length + keys.shape[2]
        held = self.layers.get(layer)
        if held is None:
            room = max(self.least, end)
            held = self.layers[layer] = _buffer(keys, room), _buffer(values, room)
        elif held[0].shape[2] < end:
            held = self.layers[layer] = _grown(held[0], self.length, end), _grown(held[1], self.length, end)
        # Not by slices: what indexing costs in Python, twice a layer, is a hundredth of a small model's pass.
        held[0].narrow(2, self.length, keys.shape[2]).copy_(keys)
        held[1].narrow(2, self.length, keys.shape[2]).copy_(values)
        return held[0].narrow(2, 0, end), held[1].narrow(2, 0, end)

    def reserve(self, positions: int) -> None:
        """Makes room for so many positions in every layer."""
        for layer, (keys, values) in self.layers.items():
            if keys.shape[2] < positions:
                self.layers[layer] = _grown(keys, self.length, positions), _grown(values, self.length, positions)

    def keep(self, rows: Sequence[int]) -> None:
        """Commits rows of the last pass, in their order; `rows` are ascending."""
        if rows[-1] != len(rows) - 1:  # a path of a tree, with other nodes between
            end = self.length + len(rows)
            places: dict[torch.device, torch.Tensor] = {}  # sent once: each time may wait for the device
            for keys, values in self.layers.values():
                if keys.device not in places:
                    places[keys.device] = torch.tensor(rows, device=keys.device) + self.length
                path = places[keys.device]
                keys[:, :, self.length : end] = keys[:, :, path]
                values[:, :, self.length : end] = values[:, :, path]
        self.length += len(rows)


def _buffer(like: torch.Tensor, positions: int) -> torch.Tensor:
    # Zeros: where slots beyond the committed ones are seen and masked (torch_static.py), 0 times NaN would be NaN.
    return like.new_zeros(1, like.shape[1], positions, like.shape[3])


def _grown(old: torch.Tensor, used: int, needed: int) -> torch.Tensor:
    new = _buffer(old, max(2 * old.shape[2], needed))
    new[:, :, :used] = old[:, :, :used]
    return new


class PassCache(Cache):  # type: ignore[misc]
    """What a model sees of several requests' keys and values in one pass, as [batch, heads, longest + rows, size].

    counts: rows of each request, those that pad it left out. One request is seen in place, without a copy.
    """

    def __init__(self, requests: Sequence[KeyValues], counts: Sequence[int]) -> None:
        super().__init__(layers=[])
        self._requests = requests
        self._counts = counts
        self.longest = max(request.length for request in requests)
        self.seen = 0
        """Layers that have put their keys and values here."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen += 1
        if len(self._requests) == 1:
            return self._requests[0].put(layer, keys, values)
        return self._joined(keys, values, layer)

    def _joined(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (len(self._requests), keys.shape[1], self.longest + keys.shape[2])
        # Zeros, since a masked slot still meets its probability of 0: 0 times NaN would be NaN.
        all_keys = keys.new_zeros(*shape, keys.shape[3])
        all_values = values.new_zeros(*shape, values.shape[3])
        all_keys[:, :, self.longest :] = keys
        all_values[:, :, self.longest :] = values
        for i, (request, count) in enumerate(zip(self._requests, self._counts, strict=True)):
            own_keys, own_values = request.put(layer, keys[i : i + 1, :, :count], values[i : i + 1, :, :count])
            all_keys[i, :, : request.length] = own_keys[0, :, : request.length]
            all_values[i, :, : request.length] = own_values[0, :, : request.length]
        return all_keys, all_values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.longest

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.longest + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    @property
    def is_compileable(self) -> bool:
        return False

    def __bool__(self) -> bool:
        return True  # its own list of layers is empty, and some models ask whether there is a cache this way
