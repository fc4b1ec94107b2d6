"""Heads as others publish them, in both layouts, with random weights, and a target that they fit."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from outpace.targets.torch_causal import TorchTarget
from tiny_torch import V, config

H, FFN, LAYERS, DRAFT_V = 32, 64, 8, 40
LAYER = {
    "hidden_size": H, "intermediate_size": FFN, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 1, "vocab_size": V, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 128, "rope_theta": 10000.0,
}  # fmt: skip


def eight_layers():
    """Returns the target."""
    made = config("llama")
    made.num_hidden_layers = LAYERS
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return TorchTarget(AutoModelForCausalLM.from_config(made, dtype=torch.float32).eval(), "llama")


def weights(prefix, reads=H, seed=1):
    torch.manual_seed(seed)
    shapes = {
        "self_attn.q_proj": (H, reads), "self_attn.k_proj": (H // 2, reads), "self_attn.v_proj": (H // 2, reads),
        "self_attn.o_proj": (H, H), "mlp.gate_proj": (FFN, H), "mlp.up_proj": (FFN, H), "mlp.down_proj": (H, FFN),
        "post_attention_layernorm": (H,),
    }  # fmt: skip
    return {f"{prefix}{name}.weight": torch.randn(shape) * 0.3 for name, shape in shapes.items()}


def eagle3(prefix):
    more = {"hidden_norm": (H,), "input_layernorm": (H,)}
    offsets = torch.arange(DRAFT_V) % 2 + torch.arange(DRAFT_V)  # row i proposes token 2 i, or one more
    return (
        weights(prefix, 2 * H)
        | {f"{prefix}{name}.weight": torch.rand(shape) + 0.5 for name, shape in more.items()}
        | {"fc.weight": torch.randn(H, 3 * H) * 0.2, "norm.weight": torch.rand(H) + 0.5}
        | {"lm_head.weight": torch.randn(DRAFT_V, H), "d2t": offsets, "t2d": torch.zeros(V, dtype=torch.bool)}
    )


def medusa():
    torch.manual_seed(2)
    found = {}
    for one in range(3):
        found |= {f"{one}.0.linear.weight": torch.randn(H, H) * 0.3, f"{one}.0.linear.bias": torch.randn(H)}
        found |= {f"{one}.1.weight": torch.randn(V, H)}
    return found


PUBLISHED = {
    "eagle by its authors": (
        LAYER,
        "pytorch_model.bin",
        weights("layers.0.")
        | {"fc.weight": torch.randn(H, 2 * H) * 0.2, "fc.bias": torch.randn(H)}
        | {"embed_tokens.weight": torch.randn(V, H)},
    ),
    "eagle of speculators": (
        {"speculators_model_type": "eagle", "transformer_layer_config": LAYER, "fusion_bias": False},
        "model.safetensors",
        weights("transformer.") | {"fusion_fc.weight": torch.randn(H, 2 * H) * 0.2},
    ),
    "eagle-3 by its authors": (LAYER | {"draft_vocab_size": DRAFT_V}, "pytorch_model.bin", eagle3("midlayer.")),
    "eagle-3 of speculators": (
        {
            "speculators_model_type": "eagle3", "transformer_layer_config": LAYER, "draft_vocab_size": DRAFT_V,
            "norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": [1, 4, 7],
        },
        "model.safetensors",
        eagle3("layers.0."),
    ),
    "medusa by its authors": ({"medusa_num_heads": 3, "medusa_num_layers": 1}, "medusa_lm_head.pt", medusa()),
}  # fmt: skip


def write(folder, described, file, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(described))
    if file.endswith(".safetensors"):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file)
    else:
        torch.save(tensors, folder / file)
    return folder
