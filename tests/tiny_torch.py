"""Tiny random models of `transformers`, made from their configs: two or three layers, 97 tokens, float32."""

from __future__ import annotations

from functools import cache

import pytest

V = 97
SEQ2SEQ = ("t5", "bart", "marian", "whisper")
CAUSAL = ("llama", "mistral", "qwen3", "gemma3", "gpt2", "mixtral")
WINDOW = 8

_DECODER = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "initializer_range": 0.3,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip


def config(name):
    """Returns the config of a family; skips the test where transformers is not installed."""
    transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
    if name == "gpt2":
        return transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3, bos_token_id=0,
            eos_token_id=1,
        )  # fmt: skip
    special = {
        "mistral": {"sliding_window": WINDOW},
        "gemma3": {
            "num_hidden_layers": 3,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    }
    kinds = {"llama": "Llama", "mistral": "Mistral", "qwen3": "Qwen3", "gemma3": "Gemma3Text", "mixtral": "Mixtral"}
    return getattr(transformers, kinds[name] + "Config")(**_DECODER | special.get(name, {}))


@cache
def causal_model(name, seed=0):
    """Returns the random model, the same for the same seed. Nobody may change it but to ask for our masks."""
    made = config(name)
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # a second one would cost more in waiting than these models take
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(made, dtype=torch.float32).eval()


_SEQ2SEQ = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.3, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 3,
}  # fmt: skip


def seq2seq_config(name):
    transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
    if name == "t5":
        return transformers.T5Config(
            vocab_size=V, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
            pad_token_id=0, eos_token_id=1, initializer_factor=3.0,
        )  # fmt: skip
    if name == "whisper":
        return transformers.WhisperConfig(
            **_SEQ2SEQ, max_target_positions=64, max_source_positions=20, num_mel_bins=8, suppress_tokens=None,
            begin_suppress_tokens=None,
        )  # fmt: skip
    kinds = {"bart": transformers.BartConfig, "marian": transformers.MarianConfig}
    return kinds[name](**_SEQ2SEQ, max_position_embeddings=64, forced_eos_token_id=None)


@cache
def seq2seq_model(name, seed=0):
    made = seq2seq_config(name)
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    kind = AutoModelForSpeechSeq2Seq if name == "whisper" else AutoModelForSeq2SeqLM
    return kind.from_config(made, dtype=torch.float32).eval()


def seq2seq_target(name, seed=0):
    made = seq2seq_model(name, seed)
    from outpace.targets.torch_seq2seq import TorchSeq2Seq

    return TorchSeq2Seq(made, name)


def torch_target(name, seed=0, **how):
    made = causal_model(name, seed)
    from outpace.targets.torch_causal import TorchTarget

    return TorchTarget(made, name, **how)


def recorded_target(name, seed=0, **how):
    """Returns a target whose passes of one request are recorded and played, as they are on a GPU."""
    made = causal_model(name, seed)
    from outpace.targets.torch_causal import TorchTarget
    from taped import Tape

    target = TorchTarget(made, name, record=lambda model: Tape(), **how)
    assert target.passes == "a tape over a static cache"
    return target
