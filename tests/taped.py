"""What a CUDA graph does, on a CPU: the same operations on the same memory, and no Python of the model's."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, found))
        return found


class Tape:
    """A recorder of passes. recorded, played: how many."""

    name = "a tape"

    def __init__(self):
        self.recorded = self.played = 0

    def record(self, one):
        with _Recording() as recording:
            outputs = one()
        self.recorded += 1

        def replay():
            self.played += 1
            for func, args, kwargs, found in recording.operations:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(found), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
            logits, states = outputs  # copied, as they are on their way from a device
            return logits.clone(), None if states is None else states.clone()

        return replay
