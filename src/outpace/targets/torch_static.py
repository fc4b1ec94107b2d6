"""Passes over keys and values that stay where they are, so that a GPU can record them and play them again.

A small model's pass is a thousand launches of kernels, and on a GPU Python takes longer over those than the kernels
do. A CUDA graph launches all of them at once, provided that every tensor has its shape and place for good. So rows
are padded to 1, 2, 4, 8 or 16, the slots that attention looks at to powers of two, and whatever else a pass depends
on (tokens, positions, where to write, which nodes of a tree see each other) is copied into one static input before.
A forward that waits for the device, which no recording can hold, is found before anything is recorded: such a model
keeps its eager passes, and the target says why.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from outpace.native.textfile import one_line
from outpace.targets.torch_cache import KeyValues, Layers, PassCache
from outpace.targets.torch_masks import Layout, Token, depths, laid_out
from outpace.targets.torch_models import Call, Tapped
from outpace.types import Draft

ROWS = (1, 2, 4, 8, 16)
"""Rows that a pass is padded to; passes of more rows are not recorded."""

LEAST_SLOTS = 256
"""Slots that attention looks at in a pass at least; beyond, powers of two."""

CAPACITY = 2048
"""Positions that the static buffers begin with; what was recorded on them is lost when they grow."""

WARM_UPS = 3
"""Passes before one is recorded, as PyTorch's documentation has them: libraries set themselves up in the first."""

Outputs: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""Logits [1, rows, V] in f32, and where there are taps hidden states [1, rows, taps, H]."""

Pass: TypeAlias = Callable[[], Outputs]


class Unrecordable(Exception):
    """Why passes of this model cannot be recorded."""


class Recorder(Protocol):
    """Turns a pass into one that does the same work on the same memory, without Python. name: as it is printed."""

    name: str

    def record(self, one: Pass) -> Pass:
        """Returns the recording, whose outputs are overwritten by the next one's. Raises RuntimeError."""
        ...


class CudaGraphs:
    """Records passes as CUDA graphs, which share their scratch memory: each is read before another one plays."""

    name = "CUDA graphs"

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)  # not PyTorch's own, which is of the first device that recorded
        self._pool: Any = None

    def record(self, one: Pass) -> Pass:
        with torch.cuda.device(self._side.device):
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                for _ in range(WARM_UPS):
                    one()
            torch.cuda.current_stream().wait_stream(self._side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._side):
                outputs = one()
            self._pool = graph.pool()

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay


def nothing_recorded(model: Any) -> None:
    """Returns no recorder, for a model whose weights others may change: a recording would not see it."""


def recorder_of(model: Any) -> Recorder | None:
    """Returns what records passes of the model where it is; None on a CPU. Raises Unrecordable, with the reason.

    OUTPACE_CUDA_GRAPHS=0 in the environment is one.
    """
    if model.device.type != "cuda":
        return None
    if os.environ.get("OUTPACE_CUDA_GRAPHS") == "0":
        raise Unrecordable("OUTPACE_CUDA_GRAPHS=0")
    if len({weight.device for weight in model.parameters()}) > 1:
        raise Unrecordable("its layers are on several devices")
    return CudaGraphs(model.device)


class OnTheDevice(TorchDispatchMode):  # type: ignore[misc]
    """Raises Unrecordable for operations that wait for the device, or whose shapes depend on values there."""

    _TAGS = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))
    _COPIES = frozenset(("aten::_to_copy", "aten::copy_"))
    _INDEXED = frozenset(("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        if name in self._INDEXED:  # of a fixed shape, but by truth values
            refused = any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
        else:
            refused = not self._TAGS.isdisjoint(func.tags)
        if not refused:
            with self:
                found = func.decompose(*args, **kwargs)  # inference mode shows operations made of others whole
            if found is NotImplemented:
                found = func(*args, **kwargs)
            if name not in self._COPIES or found.device == args[name == "aten::copy_"].device:
                return found
        raise Unrecordable(f"its forward waits for the device ({name.removeprefix('aten::')})")


class StaticInputs:
    """What a pass of so many rows depends on, in one tensor of the device that is written before each pass.

    length: [1] committed tokens. ids, rows: [1, rows] tokens and their positions. own: [rows, rows] nodes that each
    row sees of the pass.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.count = count
        self._held = torch.zeros(1 + count * (2 + count), dtype=torch.long, device=device)
        self.length, ids, rows, own = self._held.split((1, count, count, count * count))
        self.ids, self.rows, self.own = ids[None], rows[None], own.view(count, count)

    def put(self, draft: Draft, last: Token, length: int) -> None:
        """Copies a draft in. Rows that pad it repeat the last committed token's: their values are as sane as its.

        A last token that is on the device goes without a draft, and is not waited for.
        """
        count, there = self.count, isinstance(last, torch.Tensor)
        # Fresh memory, which PyTorch gives to nobody else before it was copied: an earlier pass may still be waiting.
        staged = torch.empty(len(self._held), dtype=torch.long, pin_memory=self._held.is_cuda)
        whole: np.ndarray[Any, Any] = staged.numpy()
        whole[0] = length
        whole[1 : 1 + count] = 0 if there else last
        whole[2 : 2 + len(draft)] = draft.tokens
        rows = whole[1 + count : 1 + 2 * count]
        rows[:] = length
        rows[: 1 + len(draft)] += depths(draft)
        own = whole[1 + 2 * count :].reshape(count, count)
        own[:] = np.eye(count, dtype=np.int64)
        for node, parent in enumerate(draft.parents):
            own[node + 1] |= own[parent + 1]
        self._held.copy_(staged, non_blocking=True)
        if there:
            self.ids.copy_(last)


class StaticCache(PassCache):
    """What a model sees in such a pass: keys and values [1, heads, slots, size], written at places [rows]."""

    def __init__(self, layers: Layers, places: torch.Tensor, slots: int) -> None:
        super().__init__([KeyValues(layers=layers)], [len(places)])
        self.longest = slots - len(places)
        self._static, self._places, self._slots = layers, places, slots

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen += 1
        held = self._static[layer]
        held[0].index_copy_(2, self._places, keys)
        held[1].index_copy_(2, self._places, values)
        return held[0].narrow(2, 0, self._slots), held[1].narrow(2, 0, self._slots)


class StaticPasses:
    """The static buffers of a target, lent to one request at a time, and what was recorded on them.

    positions: that a request may come to hold. Passes of several requests, long ones, and the very first one go over
    the same buffers as over any others (torch_cache.py).
    """

    def __init__(self, model: Any, call: Call, recorder: Recorder, positions: int) -> None:
        self.recorder = recorder
        self._model, self._call = model, call
        self._most = -(-(positions + ROWS[-1]) // 8) * 8  # with padding rows, in the eights that kernels like
        self._layers: Layers = {}
        self._tenant: weakref.ref[KeyValues] | None = None
        self._inputs: dict[int, StaticInputs] = {}
        self._recorded: dict[tuple[int, int, tuple[int, ...]], Pass] = {}
        self._recorded_on: torch.Tensor | None = None

    @property
    def lent(self) -> bool:
        """Whether a request has the buffers; one that is no longer referred to has given them back."""
        return self._tenant is not None and self._tenant() is not None

    def lend(self) -> KeyValues:
        """Returns empty keys and values in the static buffers, which must not be lent."""
        with torch.inference_mode():
            for buffer in (buffer for pair in self._layers.values() for buffer in pair):
                buffer.zero_()  # masked slots are read, too: what is no number there would be none in any row
        held = KeyValues(layers=self._layers, least=min(CAPACITY, self._most))
        self._tenant = weakref.ref(held)
        return held

    def owns(self, held: KeyValues) -> bool:
        """Whether these keys and values are in the static buffers."""
        return held.layers is self._layers

    def takes(self, held: KeyValues, rows: int) -> bool:
        """Whether such a pass is one of ours; the first one makes the buffers, and is not."""
        return self.owns(held) and bool(self._layers) and rows <= ROWS[-1]

    def run(self, held: KeyValues, draft: Draft, last: Token, taps: tuple[int, ...]) -> Outputs:
        """Returns the logits [1, N+1, V] and hidden states of a pass. Raises Unrecordable."""
        count = next(rows for rows in ROWS if rows > len(draft))
        slots = LEAST_SLOTS
        while slots < held.length + count:
            slots *= 2
        slots = min(slots, self._most)
        held.reserve(slots)
        buffer = next(iter(self._layers.values()))[0]
        if buffer is not self._recorded_on:  # they grew
            self.forget()
            self._recorded_on = buffer
        inputs = self._inputs.get(count)
        if inputs is None:
            inputs = self._inputs[count] = StaticInputs(count, buffer.device)
        inputs.put(draft, last, held.length)
        key = count, slots, taps
        if key not in self._recorded:
            self._recorded[key] = self._record(lambda: self._pass(inputs, slots, taps))
        logits, states = self._recorded[key]()
        rows = len(draft) + 1
        return logits[:, :rows], None if states is None else states[:, :rows]

    def forget(self) -> None:
        """Forgets what was recorded, once none of it is playing."""
        if self._recorded_on is not None and self._recorded_on.is_cuda:
            torch.cuda.synchronize(self._recorded_on.device)
        self._recorded.clear()

    def _record(self, one: Pass) -> Pass:
        try:
            with OnTheDevice():
                one()
            return self.recorder.record(one)
        except RuntimeError as error:
            raise Unrecordable(f"{self.recorder.name} failed ({one_line(error)})") from error

    def _pass(self, inputs: StaticInputs, slots: int, taps: tuple[int, ...]) -> Outputs:
        device = inputs.ids.device
        every = torch.arange(slots, device=device)
        places = inputs.length + torch.arange(inputs.count, device=device)
        committed = (every < inputs.length).expand(inputs.count, slots)
        layout = Layout(
            rows=inputs.rows,
            slots=every.index_copy(0, places, inputs.rows[0])[None],
            visible=committed.index_copy(1, places, inputs.own.bool())[None, None],
        )
        with laid_out(layout), Tapped(self._model, taps) as tapped:
            logits = self._call(inputs.ids, inputs.rows, StaticCache(self._layers, places, slots), True).float()
            return logits, tapped.states() if taps else None
