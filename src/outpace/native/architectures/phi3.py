"""Phi-3: q, k and v in one tensor, gate and up in another."""

from __future__ import annotations

from outpace.native.architectures import windows
from outpace.native.architectures.base import Architecture
from outpace.native.tensor_bytes import TensorBytes
from outpace.native.weights import ModelConfig


def _cut(files: TensorBytes, config: ModelConfig) -> None:
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for layer in range(config.layers):
        at = f"blk.{layer}."
        if at + "attn_qkv.weight" in files.tensors:
            parts = [(at + f"attn_{name}.weight", rows) for name, rows in (("q", query), ("k", key), ("v", key))]
            files.cut(at + "attn_qkv.weight", parts)
        if at + "ffn_up.weight" in files.tensors and at + "ffn_gate.weight" not in files.tensors:
            both = [(at + "ffn_gate.weight", config.ffn_size), (at + "ffn_up.weight", config.ffn_size)]
            files.cut(at + "ffn_up.weight", both)


PHI3 = Architecture(
    name="phi3",
    model_types=("phi3",),
    configure=windows.with_windows,
    keys=windows.KEYS,
    layer_tensors={"self_attn.qkv_proj.weight": "attn_qkv.weight", "mlp.gate_up_proj.weight": "ffn_up.weight"},
    arrange=_cut,
)
