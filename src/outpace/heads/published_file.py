"""Heads that others have published: EAGLE-1, -2, -3 and Medusa.

In their authors' layout, EAGLE also in that of `speculators`; both become one set of names here. Weights are
safetensors, or PyTorch's own files, of which nothing but tensors is read.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from outpace.errors import BadModelFile, Unsupported
from outpace.heads.published import EAGLE, EAGLE3, MEDUSA, published_kind, read_config
from outpace.native.textfile import one_line

Tensors = dict[str, torch.Tensor]

FILES = ("model.safetensors", "medusa_lm_head.safetensors", "pytorch_model.bin", "medusa_lm_head.pt")

_RENAMED = (
    (r"^(medusa_head|model)\.", ""),
    (r"^fusion_fc\.", "fc."),
    (r"^(transformer|midlayer|layers\.0)\.", "layer."),
)
_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                "mlp.up_proj", "mlp.down_proj")  # fmt: skip
_HEADS = "num_attention_heads"
MOST_HEADS = 64
LARGEST = 1 << 20
"""Of any size in a config."""


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """A head as it was published, checked against itself.

    kind: "eagle" (1 and 2), "eagle3" or "medusa". config: of its layer, as a Llama has it. tensors: by our names,
    `layer.` before those of its layer. taps: layers of the target that it reads, where it says so. norm_first: an
    EAGLE-3 layer adds to the normed states.
    """

    folder: Path
    kind: str
    config: Mapping[str, Any]
    tensors: Tensors
    taps: tuple[int, ...] | None = None
    norm_first: bool = False


def read_published(folder: Path) -> PublishedHead:
    """Returns the head of a folder. Raises Unsupported for a kind that does not run here, BadModelFile otherwise."""
    kind, config = published_kind(folder), read_config(folder)
    if kind not in (EAGLE, EAGLE3, MEDUSA):
        raise Unsupported(f"{folder}: a head of kind {str(kind)[:40]!r}; {EAGLE}, {EAGLE3} and {MEDUSA} run here")
    if config.get("layernorms"):
        raise Unsupported(f"{folder}: EAGLE with further norms (layernorms: true) does not run here")
    layer = config.get("transformer_layer_config", config)
    if not isinstance(layer, dict):
        raise BadModelFile(f"{folder}: transformer_layer_config must be an object")
    found = PublishedHead(
        folder,
        kind,
        layer,
        _renamed(_read(folder)),
        _taps(config, folder),
        bool(config.get("norm_before_residual", False)),
    )
    (_check_medusa if kind == MEDUSA else _check_eagle)(found)
    return found


def _read(folder: Path) -> Tensors:
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise BadModelFile(f"{folder}: holds none of {', '.join(FILES)}")
    try:
        if file.suffix == ".safetensors":
            loaded = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        raise BadModelFile(f"{file}: cannot be read as tensors: {one_line(error)}") from None
    if not isinstance(loaded, dict) or not all(isinstance(one, torch.Tensor) for one in loaded.values()):
        raise BadModelFile(f"{file}: must hold tensors by name, and nothing else")
    return loaded


def _renamed(tensors: Tensors) -> Tensors:
    found = {}
    for name, tensor in tensors.items():
        for old, new in _RENAMED:
            name = re.sub(old, new, name)
        found[name] = tensor
    return found


def _taps(config: Mapping[str, Any], folder: Path) -> tuple[int, ...] | None:
    """Returns the layers whose outputs are read. Published ids count the embedding as 0, so layer 0's output is 1."""
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(one) is int and 1 <= one <= 1024 for one in ids):
        raise BadModelFile(f"{folder}: eagle_aux_hidden_state_layer_ids must be layers from 1, got {ids!r:.60}")
    return tuple(one - 1 for one in ids)


def _check_eagle(head: PublishedHead) -> None:
    config, label = head.config, str(head.folder)
    hidden, ffn, heads = (_size(config, name, label) for name in ("hidden_size", "intermediate_size", _HEADS))
    kv = _size(config, "num_key_value_heads", label) if "num_key_value_heads" in config else heads
    size = int(config.get("head_dim") or hidden // heads)
    if heads % kv:
        raise BadModelFile(f"{label}: {heads} heads cannot share {kv} of keys and values")
    reads = hidden * (2 if head.kind == EAGLE3 else 1)
    shapes = dict(zip(_PROJECTIONS, [(heads * size, reads), (kv * size, reads), (kv * size, reads),
                                     (hidden, heads * size), (ffn, hidden), (ffn, hidden), (hidden, ffn)],
                      strict=True))  # fmt: skip
    wanted: dict[str, tuple[int, ...]] = {f"layer.{name}.weight": shape for name, shape in shapes.items()}
    norms = ["layer.post_attention_layernorm"]
    if head.kind == EAGLE3:
        norms += ["layer.hidden_norm", "layer.input_layernorm", "norm"]
    wanted |= {f"{name}.weight": (hidden,) for name in norms}
    _check_shapes(head, wanted)
    fused = head.tensors.get("fc.weight")
    if fused is None or fused.dim() != 2 or fused.shape[0] != hidden:
        raise BadModelFile(f"{label}: fc.weight must have {hidden} rows")
    if head.kind == EAGLE3:
        _check_vocabulary(head, hidden)


def _size(config: Mapping[str, Any], name: str, label: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise BadModelFile(f"{label}: {name} must be in [1, {LARGEST}], got {str(value)[:40]}")
    return value


def _check_vocabulary(head: PublishedHead, hidden: int) -> None:
    output, offsets = head.tensors.get("lm_head.weight"), head.tensors.get("d2t")
    if output is None or output.dim() != 2 or output.shape[1] != hidden:
        raise BadModelFile(f"{head.folder}: lm_head.weight must have {hidden} columns")
    if offsets is not None and (offsets.shape != output.shape[:1] or offsets.is_floating_point()):
        raise BadModelFile(f"{head.folder}: d2t must have {len(output)} whole numbers")


def _check_medusa(head: PublishedHead) -> None:
    count, layers = (head.config.get(name, 1) for name in ("medusa_num_heads", "medusa_num_layers"))
    for name, value in (("medusa_num_heads", count), ("medusa_num_layers", layers)):
        if type(value) is not int or not 1 <= value <= MOST_HEADS:
            raise BadModelFile(f"{head.folder}: {name} must be in [1, {MOST_HEADS}], got {str(value)[:40]}")
    first = head.tensors.get("0.0.linear.weight")
    if first is None or first.dim() != 2:
        raise BadModelFile(f"{head.folder}: 0.0.linear.weight is missing")
    hidden, wanted = int(first.shape[0]), dict[str, tuple[int, ...]]()
    for one in range(count):
        wanted |= {f"{one}.{layer}.linear.weight": (hidden, hidden) for layer in range(layers)}
        output = head.tensors.get(f"{one}.{layers}.weight")
        if output is None or output.dim() != 2 or output.shape[1] != hidden:
            raise BadModelFile(f"{head.folder}: {one}.{layers}.weight must have {hidden} columns")
    _check_shapes(head, wanted)


def _check_shapes(head: PublishedHead, wanted: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in wanted.items():
        tensor = head.tensors.get(name)
        if tensor is None or tuple(tensor.shape) != shape:
            got = "it is missing" if tensor is None else f"got {list(tensor.shape)}"
            raise BadModelFile(f"{head.folder}: {name} must be {list(shape)}, {got}")
