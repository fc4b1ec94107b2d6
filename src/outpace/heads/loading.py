"""Heads on the engine's kernels, and where they are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from outpace import _native
from outpace.errors import OutpaceError, UsageError
from outpace.heads.config import HeadConfig
from outpace.heads.file import HeadFile, check_target, matrix_shapes, read_head
from outpace.heads.quantise import quantise
from outpace.native.weights import ModelConfig, Rope
from outpace.targets.native import NativeTarget
from outpace.types import Drafter, Target

OUTPUT_FORMAT = "Q4_1"
"""Of the target's output rows as a head multiplies them. At 8 bits the embedded model's head, blended with counts,
has as many tokens a step, and takes 1 % longer for them; alone it loses 0.02 of 0.54 accepted first tokens at 4."""

_PACKED_ROWS = 1024

_Key: TypeAlias = tuple[str, tuple[tuple[Path, int], ...]]
"""A drafter's name, and (file, time of its last change) of each head there is."""

SHIPPED = Path(__file__).parent / "shipped"
"""The heads of the package."""

_MADE: WeakKeyDictionary[NativeTarget, dict[_Key, Drafter | str]] = WeakKeyDictionary()
"""The drafter of a target's head, or why there is none."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A head that runs. layer: its native part. draft_ids: the target's token at each of its rows [draft_vocab]."""

    config: HeadConfig
    layer: _native.DraftHead
    draft_ids: NDArray[np.int32]

    def full(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns [vocab_size] a row over the draft vocabulary; what the head cannot propose has -inf."""
        return spread(self.config, self.draft_ids, row)


def spread(config: HeadConfig, draft_ids: NDArray[np.int32], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns [vocab_size] a row over the draft vocabulary, -inf elsewhere."""
    full = np.full(config.vocab_size, -np.inf, np.float32)
    full[draft_ids] = row
    return full


def load_head(head: HeadFile, target: NativeTarget) -> LoadedHead:
    """Returns the head on the target's kernels, threads and context. Raises VocabularyMismatch for another target."""
    check_target(head, target)
    c = head.config
    tensors: dict[str, _native.Matrix | NDArray[np.float32]] = {
        f"blk.0.{name}.weight": packed_matrix(head, name)
        for name in head.matrices
        if name not in ("fuse", "embed", "state")
    }
    for name in ("attn_norm", "ffn_norm"):
        tensors[f"blk.0.{name}.weight"] = head.vectors[name][0]
    tensors["output_norm.weight"] = head.vectors["output_norm"][0]
    tensors["token_embd.weight"] = output_matrix(head, target)
    layer = _native.Model(_layer_config(c), tensors, None, target.max_length, target.threads, target.model.kernel)
    native = _native.DraftHead(
        layer,
        target.model,
        head.draft_ids.tolist(),
        tap_norms=head.vectors["tap_norms"],
        mask=head.vectors["mask"],
        fuse=packed_matrix(head, "fuse"),
        embed=packed_matrix(head, "embed"),
        state=packed_matrix(head, "state"),
    )
    return LoadedHead(c, native, head.draft_ids)


def output_matrix(head: HeadFile, target: NativeTarget) -> _native.Matrix:
    """Returns the target's output rows of the draft vocabulary, packed."""
    rows = target.model.output_rows(head.draft_ids.tolist())
    return _packed(OUTPUT_FORMAT, quantise(rows, OUTPUT_FORMAT), head.config.hidden_size)


def packed_matrix(head: HeadFile, name: str) -> _native.Matrix:
    """Returns a matrix of the file, packed."""
    format, blocks = head.matrices[name]
    return _packed(format, blocks, matrix_shapes(head.config)[name][1])


def _layer_config(c: HeadConfig) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        layers=1,
        hidden_size=c.hidden_size,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        ffn_size=c.ffn_size,
        vocab_size=c.draft_vocab,
        context_length=1 << 20,
        rope=Rope(c.rope_theta),
        rope_interleaved=c.rope_interleaved,
        norm_epsilon=c.norm_epsilon,
        attention_bias=False,
        tied=True,
        eos_ids=frozenset(),
    )


def _packed(format: str, blocks: NDArray[np.uint8], cols: int) -> _native.Matrix:
    matrix = _native.Matrix(format, len(blocks), cols)
    for first in range(0, len(blocks), _PACKED_ROWS):
        matrix.pack(first, np.ascontiguousarray(blocks[first : first + _PACKED_ROWS]).reshape(-1))
    return matrix


# -- where heads are ------------------------------------------------------------------------------------------------
def named_places() -> list[Path]:
    """Returns the files and folders that OUTPACE_HEADS names."""
    return [Path(place) for place in os.environ.get("OUTPACE_HEADS", "").split(os.pathsep) if place]


def head_files() -> Iterator[Path]:
    """Yields every head there is: those of OUTPACE_HEADS (files or folders), then those of the package."""
    for place in named_places():
        if os.path.isdir(place):
            yield from sorted(place.glob("*.safetensors"))
        else:
            yield place
    yield from sorted(SHIPPED.glob("*.safetensors"))


def native_only(target: Target) -> NativeTarget:
    """Returns the target. Raises UsageError unless it is on the native engine, whose kernels run the heads."""
    if not isinstance(target, NativeTarget):
        raise UsageError(f"draft heads run on the native engine, {target.name} is on {target.engine}: use 'ngram'")
    return target


def drafter_for(
    target: Target, name: str, kinds: tuple[str, ...], make: Callable[[HeadFile, NativeTarget], Drafter]
) -> Drafter:
    """Returns the drafter `name` that `make` makes of a head of one of the kinds, the same one for every request.

    It is made anew when the files that heads are looked for in have changed. Raises UsageError when there is none.
    """
    native = native_only(target)
    made = _MADE.setdefault(native, {})
    key = (name, tuple((path, _changed(path)) for path in head_files()))
    if key not in made:
        try:
            made[key] = make(find_head(native, kinds), native)
        except UsageError as error:
            made[key] = str(error)
    found = made[key]
    if isinstance(found, str):
        raise UsageError(found)
    return found


def _changed(path: Path) -> int:
    """Returns when a file was last changed, in ns; 0 where nothing can be read, which `find_head` says."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def find_head(target: NativeTarget, kinds: tuple[str, ...]) -> HeadFile:
    """Returns the first head of one of the kinds that was made for the target.

    Raises UsageError saying what every head that was looked at is for; for a file named by OUTPACE_HEADS that is no
    head, too, which is not passed over in silence.
    """
    refused: list[str] = []
    for path in head_files():
        try:
            head = read_head(path)
        except OutpaceError as error:
            if path in named_places():
                raise UsageError(f"OUTPACE_HEADS names {error}") from None
            refused.append(str(error))
            continue
        try:
            if head.config.kind not in kinds:
                continue
            check_target(head, target)
        except OutpaceError as error:
            refused.append(str(error))
        else:
            return head
    told = "; ".join(refused) or "none is there"
    raise UsageError(
        f"no {' or '.join(kinds)} head for {target.name} ({told}): train one with `outpace train {kinds[0]}`, and "
        "name its file or folder in OUTPACE_HEADS"
    )
