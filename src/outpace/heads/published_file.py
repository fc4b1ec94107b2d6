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
from safetensors.torch import load_file

from outpace.errors import BadModelFile, Unsupported
from outpace.heads.published import EAGLE, EAGLE3, MEDUSA, published_kind, read_config
from outpace.native.metadata import brief, quoted
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
_FIELDS = frozenset((
    "hidden_size", "intermediate_size", _HEADS, "num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act",
    "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "medusa_num_heads",
    "medusa_num_layers",
))  # fmt: skip
MOST_HEADS = 64
LARGEST = 1 << 20
"""Of any size in a config."""


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """A head as it was published, checked against itself.

    kind: "eagle" (1 and 2), "eagle3" or "medusa". config: what it computes by, named as a Llama's. tensors: by our
    names, `layer.` before those of its layer. taps: layers of the target that it reads, where it says so. norm_first:
    an EAGLE-3 layer adds to the normed states.
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
        raise Unsupported(f"{folder}: a head of kind {brief(kind)}; {EAGLE}, {EAGLE3} and {MEDUSA} run here")
    if config.get("layernorms"):
        raise Unsupported(f"{folder}: EAGLE with further norms (layernorms: true) does not run here")
    layer = config.get("transformer_layer_config", config)
    if not isinstance(layer, dict):
        raise BadModelFile(f"{folder}: transformer_layer_config must be an object, got {brief(layer)}")
    found = PublishedHead(
        folder,
        kind,
        {name: value for name, value in layer.items() if name in _FIELDS and value is not None},
        _renamed(_read(folder)),
        _taps(config, folder),
        bool(config.get("norm_before_residual", False)),
    )
    (_check_medusa if kind == MEDUSA else _check_eagle)(found)
    _check_biases(found)
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
    except pickle.UnpicklingError:  # its text tells how to run what the file holds
        raise BadModelFile(f"{file}: holds more than tensors, or was cut short; safetensors would work") from None
    except Exception as error:  # both libraries raise what their parsers stumble on
        raise BadModelFile(f"{file}: cannot be read as tensors: {one_line(error)}") from None
    if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
        raise BadModelFile(f"{file}: must hold tensors by name, got {type(loaded).__name__}")
    for name, one in loaded.items():
        if not isinstance(one, torch.Tensor) or one.is_complex():
            what = f"numbers of {one.dtype}" if isinstance(one, torch.Tensor) else type(one).__name__
            raise BadModelFile(f"{file}: {quoted(name)} must be a tensor of real numbers, got {what}")
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
        raise BadModelFile(f"{folder}: eagle_aux_hidden_state_layer_ids must be layers from 1, got {brief(ids)}")
    return tuple(one - 1 for one in ids)


def _check_eagle(head: PublishedHead) -> None:
    config, label = head.config, str(head.folder)
    hidden, ffn, heads = (_size(config, name, label) for name in ("hidden_size", "intermediate_size", _HEADS))
    kv = _size(config, "num_key_value_heads", label, heads)
    size = _size(config, "head_dim", label, max(1, hidden // heads))
    if heads % kv:
        raise BadModelFile(f"{label}: {heads} heads cannot share {kv} of keys and values")
    for name, usual in (("rms_norm_eps", 1e-6), ("rope_theta", 1e4)):
        value = config.get(name, usual)
        if type(value) not in (int, float) or not 1e-30 <= value <= 1e11:
            raise BadModelFile(f"{label}: {name} must be in [1e-30, 1e11], got {brief(value)}")
    _size(config, "max_position_embeddings", label, 2048, 1 << 26)
    if config.get("hidden_act", "silu") != "silu":
        raise Unsupported(f"{label}: hidden_act must be 'silu', got {brief(config['hidden_act'])}")
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
    if not _is_matrix(fused, 0, hidden):
        raise BadModelFile(f"{label}: fc.weight must have {hidden} rows, {_found(fused)}")
    own = head.tensors.get("embed_tokens.weight")
    if own is not None and not _is_matrix(own, 1, hidden):
        raise BadModelFile(f"{label}: embed_tokens.weight must have {hidden} columns, {_found(own)}")
    if head.kind == EAGLE3:
        _check_vocabulary(head, hidden)


def _size(config: Mapping[str, Any], name: str, label: str, usual: int | None = None, most: int = LARGEST) -> int:
    value = config.get(name)
    value = usual if value is None else value
    if type(value) is not int or not 1 <= value <= most:
        raise BadModelFile(f"{label}: {name} must be in [1, {most}], got {brief(value)}")
    return value


def _check_vocabulary(head: PublishedHead, hidden: int) -> None:
    output, offsets = head.tensors.get("lm_head.weight"), head.tensors.get("d2t")
    if output is None or not _is_matrix(output, 1, hidden):
        raise BadModelFile(f"{head.folder}: lm_head.weight must have {hidden} columns, {_found(output)}")
    if offsets is not None and (offsets.shape != output.shape[:1] or offsets.is_floating_point()):
        raise BadModelFile(f"{head.folder}: d2t must have {len(output)} whole numbers, {_found(offsets)}")


def _check_medusa(head: PublishedHead) -> None:
    label = str(head.folder)
    count = _size(head.config, "medusa_num_heads", label, most=MOST_HEADS)
    layers = _size(head.config, "medusa_num_layers", label, 1, MOST_HEADS)
    first = head.tensors.get("0.0.linear.weight")
    if first is None or first.dim() != 2 or not first.is_floating_point():
        raise BadModelFile(f"{label}: 0.0.linear.weight must be a matrix, {_found(first)}")
    hidden, wanted = int(first.shape[0]), dict[str, tuple[int, ...]]()
    for one in range(count):
        wanted |= {f"{one}.{layer}.linear.weight": (hidden, hidden) for layer in range(layers)}
        output = head.tensors.get(f"{one}.{layers}.weight")
        if not _is_matrix(output, 1, hidden):
            raise BadModelFile(f"{label}: {one}.{layers}.weight must have {hidden} columns, {_found(output)}")
    _check_shapes(head, wanted)


def _check_shapes(head: PublishedHead, wanted: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in wanted.items():
        tensor = head.tensors.get(name)
        if tensor is None or tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise BadModelFile(f"{head.folder}: {name} must be {list(shape)}, {_found(tensor)}")


def _check_biases(head: PublishedHead) -> None:
    for name, bias in head.tensors.items():
        weight = head.tensors.get(f"{name.removesuffix('.bias')}.weight")
        if name.endswith(".bias") and weight is not None and bias.shape != weight.shape[:1]:
            raise BadModelFile(f"{head.folder}: {quoted(name)} must be {list(weight.shape[:1])}, {_found(bias)}")


def _is_matrix(tensor: torch.Tensor | None, axis: int, size: int) -> bool:
    return tensor is not None and tensor.dim() == 2 and tensor.shape[axis] == size and tensor.is_floating_point()


def _found(tensor: torch.Tensor | None) -> str:
    return "it is missing" if tensor is None else f"got {list(tensor.shape)} of {str(tensor.dtype).split('.')[-1]}"
